"""Symbolic sizes: one compilation for all sizes from 2 up, sizes as data and as results, and what guards teach."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F
from torch.utils._sympy import functions as sympy_functions
from torch_harness import Imports, assert_same, check, compiled

from luminal.dim import dim
from luminal.errors import UnsupportedOpError
from luminal.search import buckets
from luminal.stats import stats
from luminal.torch.calling import size_function
from luminal.torch.symbols import SymbolTable


def test_one_compilation_serves_all_sizes() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ y.transpose(0, 1), -1).flatten() * 2

    run = compiled(function, dynamic=True)
    with Imports() as imports:
        for rows, columns in ((5, 3), (7, 2), (2, 9), (31, 17)):
            x, y = torch.randn(rows, 4), torch.randn(columns, 4)
            assert_same(run(x, y), function(x, y))
    assert len(imports.graphs) == 1


def test_sizes_are_split_between_programs_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    monkeypatch.setattr(buckets, "MARGIN", -1.0)  # whatever the roofline says of this machine
    run = compiled(model, dynamic=True, buckets="auto", cache=False)
    with torch.no_grad(), Imports() as imports:
        for rows in (4, 11, 12, 64, 4):
            x = torch.randn(rows, 16)
            assert_same(run(x), model(x))
        model[0].weight.mul_(2.0)
        for rows in (64, 4):
            x = torch.randn(rows, 16)
            assert_same(run(x), model(x))
    assert len(imports.graphs) == 1
    programs = stats()["last"]["programs"]
    assert [name.partition(" ")[2] for name in programs] == ["in 2 to 11", "in 12 to inf"]
    torch._dynamo.reset()
    assert_same(compiled(model, dynamic=True, buckets="declared", cache=False)(x), model(x))
    assert stats()["last"]["programs"] == {}


def test_sizes_0_and_1_are_compiled_apart_and_right() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(0) + 1, torch.cat([x, x * 2])

    run = compiled(function, dynamic=True)
    for rows in (5, 7, 1, 2, 0):
        x = torch.randn(rows, 4)
        assert_same(run(x), function(x))


def test_a_size_is_data_and_a_result() -> None:
    found = check(
        lambda x: (x * x.shape[0], x.shape[1] * 2, x.shape[0] + x.shape[1]), torch.randn(3, 5), dynamic=True
    )
    assert found[1:] == (10, 8)


def test_symbolic_floats() -> None:
    check(lambda x: x / (x.shape[0] ** 0.5) + x.shape[1] * 0.5, torch.randn(3, 4), dynamic=True)


def test_a_number_argument() -> None:
    check(lambda x, n: x[:, :n] * n, torch.randn(3, 10), 4, dynamic=True)


@pytest.mark.parametrize("scale", [2.0, 1.5, 1.1])
def test_a_size_that_is_the_floor_of_a_float_product(scale: float) -> None:
    resize = torch.nn.functional.interpolate
    check(lambda x: resize(x, scale_factor=scale, mode="nearest"), torch.randn(2, 3, 5, 17), dynamic=True)


def test_a_proven_divisor_is_factored_out() -> None:
    run = compiled(lambda x: x.view(-1, 8).sum(1), dynamic=True)
    with Imports() as imports:
        for count in (32, 48, 800):
            x = torch.randn(count)
            assert_same(run(x), x.view(-1, 8).sum(1))
    assert len(imports.graphs) == 1


def test_equal_sizes_that_only_a_guard_knows() -> None:
    check(lambda x: torch.stack(x.chunk(4, 1)).sum(0), torch.randn(6, 8), dynamic=True)


def test_sums_of_sizes() -> None:
    check(lambda x, y: torch.cat([x, y]).view(-1) + 1, torch.randn(3, 4), torch.randn(5, 4), dynamic=True)


def test_what_decides_the_program_is_guarded() -> None:
    def padded(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.nn.functional.pad(x, (n, 2 * n))

    def windows(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.unfold(1, n, 2).sum(2)

    cases = ((padded, (2, 3, -2, -3, 4), [1, 1, 2, 2, 2]), (windows, (3, 4, 3), [1, 2, 2]))
    for function, numbers, compilations in cases:
        run = compiled(function, dynamic=True)
        seen: list[int] = []
        with Imports() as imports:
            for number in numbers:
                x = torch.randn(5, 12)
                assert_same(run(x, number), function(x, number))
                seen.append(len(imports.graphs))
        assert seen == compilations


# ---- the translation itself ------------------------------------------------------------------------------------


def _table() -> tuple[SymbolTable, sympy.Symbol]:
    return SymbolTable(None), sympy.Symbol("s", integer=True)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s: 2 * s + 3, "2*s + 3"),
        (lambda s: s**2, "s*s"),
        (lambda s: sympy_functions.FloorDiv(s, 4), "s // 4"),
        (lambda s: sympy_functions.PythonMod(s, 4), "s % 4"),
        (lambda s: sympy_functions.ModularIndexing(s, 2, 3), "s // 2 % 3"),
        (lambda s: sympy_functions.Max(s, 4), "max(s, 4)"),
        (lambda s: sympy_functions.CeilDiv(s, 4), None),
    ],
)
def test_expressions_become_dims(make: object, expected: str | None) -> None:
    table, symbol = _table()
    found = table.translate(make(symbol))  # type: ignore[operator]
    for value in (1, 4, 7, 12):
        known = int(make(sympy.Integer(value)))  # type: ignore[operator]
        assert found.evaluate({"s": value}) == known
    if expected is not None:
        s = dim("s", -(2**63))
        names = {"s": s, "max": __import__("luminal.dim", fromlist=["dim_max"]).dim_max}
        assert found == eval(expected, names)


def test_an_expression_without_a_form_is_refused() -> None:
    table, symbol = _table()
    with pytest.raises(UnsupportedOpError, match="no symbolic form"):
        table.translate(sympy.sqrt(symbol))


def test_a_size_that_no_input_has_is_refused() -> None:
    table = SymbolTable(ShapeEnv())
    with pytest.raises(UnsupportedOpError, match="depends on data"):
        table.bindings([], ["u0"])


def test_a_size_function() -> None:
    s, t = dim("s"), dim("t")
    assert size_function([(s, 2 * t), (s // 2,), ()], ["s", "t"])(7, 3) == ((7, 6), (3,), ())


def test_sizes_that_an_operation_needs_to_be_equal_are_guarded() -> None:
    """PyTorch's trace of attention and of concatenation leaves some equal sizes two symbols."""
    run = compiled(
        lambda q, k, v, x: (F.scaled_dot_product_attention(q, k, v), torch.cat([k, v, x], 1)), dynamic=True
    )
    function = lambda q, k, v, x: (F.scaled_dot_product_attention(q, k, v), torch.cat([k, v, x], 1))  # noqa: E731
    for length in (5, 9, 6):
        q, k, v, x = (torch.randn(2, 3, n, 4) for n in (length + 1, length, length, length))
        with torch.no_grad():
            assert_same(run(q, k, v, x), function(q, k, v, x))
    with pytest.raises((RuntimeError, ValueError)):
        run(q, k, v[:, :, 1:], x)


def test_a_cache_whose_size_is_found_to_be_anothers_is_written() -> None:
    """The guard that attention adds renames the size of `v`, of which there are values by then."""

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        k.index_copy_(2, place, q)
        v.index_copy_(2, place, q + 1)
        return F.scaled_dot_product_attention(q, k, v)

    caches = [torch.randn(1, 2, 7, 4) for _ in range(2)]
    for cache in caches:
        torch._dynamo.mark_dynamic(cache, 2)
    check(step, torch.randn(1, 2, 1, 4), *caches, torch.tensor([3]), dynamic=None)


def test_a_decoder_of_an_upsampled_half_concatenates() -> None:
    resize = torch.nn.functional.interpolate

    def decode(x: torch.Tensor) -> torch.Tensor:
        half = resize(torch.nn.functional.max_pool2d(x, 3, 2, 1), scale_factor=2.0)
        return torch.cat([x, half], 1)

    check(decode, torch.randn(2, 3, 16, 12), dynamic=True)
