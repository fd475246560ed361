"""Programs of torch.export, compiled: the module's own signature, symbolic sizes, buffers, arguments of any strides."""

from __future__ import annotations

import re

import pytest
import torch
from torch.export import Dim, export
from torch_harness import TARGET, assert_same

from luminal.dump import collect
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


def test_of_a_cache_only_what_changes_is_written() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(64, 8))

        def forward(self, key: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            self.keys.index_copy_(0, position, key)
            return self.keys.sum(0)

    model = Cache()
    given = torch.arange(8.0).reshape(1, 8), torch.tensor([3])
    with collect() as levels:
        run = compile_exported(export(model, given), options={**OPTIONS, "cache": False})
    assert re.search(r"output \d: .*64, 8\] in input \d", levels[-1]["plan"])
    for position in (3, 60):
        assert_same(run(given[0], torch.tensor([position])), model(given[0], torch.tensor([position])))


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


class _Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ x.t()).softmax(-1) @ x, x.roll(1, 0), torch.cat([x, x]), x.cumsum(0), x[None] + x[:, None]


def test_sizes_are_what_was_promised_and_not_what_was_traced() -> None:
    """A trace takes every symbol for 2 or more; the exported program holds from 0 on."""
    program = export(_Rows(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("rows", min=0, max=8)},))
    run = compile_exported(program, options=OPTIONS)
    for rows in (0, 1, 3, 8):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), _Rows()(x))
    with pytest.raises(DimRangeError, match="0 to 8 was given 9"):
        run(torch.ones(9, 4))


def test_a_symbol_that_only_a_multiple_of_it_shows() -> None:
    class Pairs(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.view(x.shape[0] // 2, 2, 4).sum(1) + y.sum()

    half = Dim("half", min=2, max=16)
    given = (torch.randn(6, 4), torch.randn(10))
    run = compile_exported(
        export(Pairs(), given, dynamic_shapes=({0: 2 * half}, {0: 3 * half + 1})), options=OPTIONS
    )
    for rows, others in ((6, 10), (4, 7), (32, 49)):
        x, y = torch.randn(rows, 4), torch.randn(others)
        assert_same(run(x, y), Pairs()(x, y))
    for rows, others in ((5, 7), (6, 13)):
        with pytest.raises(ShapeError, match=r"expected \[.*s\d+.*\] with {'s\d+': \d}"):
            run(torch.randn(rows, 4), torch.randn(others))


def test_what_the_trace_took_for_granted_of_sizes_is_checked() -> None:
    """The other branch is not in the program."""

    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0]
            return x * 2 if rows * rows > 20 and rows % 3 == 0 else x * 3

    program = export(Branches(), (torch.ones(6, 4),), dynamic_shapes=({0: Dim.AUTO},))
    run = compile_exported(program, options=OPTIONS)
    assert run(torch.ones(9, 4)).tolist() == [[2.0] * 4] * 9
    for rows in (3, 7):
        with pytest.raises(ShapeError, match="traced for sizes with"):
            run(torch.ones(rows, 4))
