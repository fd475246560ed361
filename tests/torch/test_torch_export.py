"""Programs of torch.export, compiled: the module's own signature, symbolic sizes, buffers, arguments of any strides."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim, export
from torch_harness import TARGET, assert_same

from luminal.errors import DimRangeError, DTypeError, OptionError, ShapeError, UnsupportedOpError
from luminal.torch.export import ExportedCallable, compile_exported


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.softmax(self.linear(x) * self.scale + shift, -1), "x": x}


OPTIONS = {"target": TARGET, "strict": True}


def test_a_program_with_its_signature() -> None:
    model = _Model().eval()
    x, shift = torch.randn(5, 4), torch.randn(3)
    run = compile_exported(export(model, (x,), {"shift": shift}), options=OPTIONS)
    with torch.no_grad():
        assert_same(run(x, shift=shift), model(x, shift=shift))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_norm_without_a_number_adds_that_of_the_dtype_of_its_sum(dtype: torch.dtype) -> None:
    model = torch.nn.RMSNorm(8, dtype=dtype).requires_grad_(False)
    x = torch.full((2, 8), 1e-4, dtype=dtype)
    run = compile_exported(export(model, (x,)), options=OPTIONS)
    torch.testing.assert_close(run(x), model(x))


def test_symbolic_sizes() -> None:
    model = _Model().eval()
    program = export(
        model,
        (torch.randn(5, 4),),
        {"shift": torch.randn(3)},
        dynamic_shapes={"x": {0: Dim("rows")}, "shift": None},
    )
    run = compile_exported(program, options=OPTIONS)
    with torch.no_grad():
        for rows in (2, 9, 33):
            x, shift = torch.randn(rows, 4), torch.randn(3)
            assert_same(run(x, shift=shift), model(x, shift=shift))


def test_arguments_of_other_strides_than_the_exported_ones() -> None:
    model = _Model().eval()
    run = compile_exported(export(model, (torch.randn(5, 4),), {"shift": torch.randn(3)}), options=OPTIONS)
    x, shift = torch.randn(4, 5).t(), torch.randn(6)[::2]
    with torch.no_grad():
        torch.testing.assert_close(run(x, shift=shift)["y"], model(x, shift=shift)["y"])


def test_a_buffer_is_updated_in_place() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    run = compile_exported(export(Counter(), (torch.zeros(2),)), options=OPTIONS)
    assert [run(torch.zeros(2)).tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


def test_an_argument_is_updated_in_place() -> None:
    class Writer(torch.nn.Module):
        def forward(self, cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            cache[1:2] = x
            return cache * 2

    run = compile_exported(export(Writer(), (torch.zeros(3, 2), torch.ones(1, 2))), options=OPTIONS)
    cache = torch.zeros(3, 2)
    assert_same(run(cache, torch.ones(1, 2)), torch.tensor([[0.0, 0], [2, 2], [0, 0]]))
    assert_same(cache, torch.tensor([[0.0, 0], [1, 1], [0, 0]]))


def test_arguments_of_another_structure() -> None:
    run = compile_exported(export(_Model(), (torch.randn(5, 4),), {"shift": torch.randn(3)}), options=OPTIONS)
    with pytest.raises(OptionError, match="structure"):
        run(torch.randn(5, 4), torch.randn(3))


def test_strict_and_unknown_options() -> None:
    class Spectrum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.svdvals(x)

    program = export(Spectrum(), (torch.randn(3, 3),))
    with pytest.raises(UnsupportedOpError, match="linalg_svd"):
        compile_exported(program, options=OPTIONS)
    with pytest.raises(OptionError, match="option 'fast'"):
        compile_exported(program, options={"fast": True})


def linear(**shapes: object) -> ExportedCallable:
    return compile_exported(
        export(torch.nn.Linear(4, 3).eval(), (torch.randn(3, 4),), **shapes), options=OPTIONS
    )


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.ones(1, 4), ShapeError, r"input has shape \[1, 4\], expected \[3, 4\]"),
        (torch.ones(5, 4), ShapeError, r"input has shape \[5, 4\], expected \[3, 4\]"),
        (torch.ones(4), ShapeError, r"input has shape \[4\], expected \[3, 4\]"),
        (torch.ones(3, 4).double(), DTypeError, "input has dtype torch.float64, expected torch.float32"),
        ("x", OptionError, "input is a str, expected a tensor"),
    ],
)
def test_tensors_of_another_kind_are_refused(given: object, error: type[Exception], message: str) -> None:
    """Nothing of torch's checks them: they would be read beyond their ends, or as another dtype."""
    with pytest.raises(error, match=message):
        linear()(given)


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    rows = Dim("rows", min=2, max=8)
    run = linear(dynamic_shapes=({0: rows},))
    with pytest.raises(ShapeError, match=r"input has shape \[5, 5\], expected \[s\d+, 4\] with {'s\d+': 5}"):
        run(torch.ones(5, 5))
    with pytest.raises(DimRangeError, match="2 to 8 was given 9"):
        run(torch.ones(9, 4))

    class Paired(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.sum(1) + y.sum(1)

    inputs = (torch.ones(3, 4), torch.ones(3, 5))
    paired = compile_exported(
        export(Paired(), inputs, dynamic_shapes=({0: rows}, {0: rows})), options=OPTIONS
    )
    assert paired(torch.ones(4, 4), torch.ones(4, 5)).tolist() == [9.0] * 4
    with pytest.raises(ShapeError, match=r"y has shape \[7, 5\], expected \[s\d+, 5\] with {'s\d+': 4}"):
        paired(torch.ones(4, 4), torch.ones(7, 5))
