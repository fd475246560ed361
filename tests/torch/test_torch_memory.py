"""Memory: strides of results, arguments that are no row-major tensors, aliases, and writes in place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch_harness import TARGET, Imports, assert_same, check, compiled

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo import HloOp
from luminal.dump import collect
from luminal.torch import report


def test_results_have_eager_strides() -> None:
    check(
        lambda x: (
            x.permute(2, 0, 1) + 1,
            (x + 1).permute(0, 2, 1),
            x.sum(-1).expand(4, 2, 3),
            (x * 2)[:, ::2],
        ),
        torch.randn(2, 3, 4),
    )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_arguments_of_any_strides(dynamic: bool) -> None:
    x, y, z = torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2], torch.randn(3, 1).expand(3, 4)
    before = report.copied_bytes()
    check(lambda x, y, z: x * y + z, x, y, z, dynamic=dynamic)
    assert report.copied_bytes() - before == 3 * 4 * 4  # y alone; a transposed and an expanded one are free


def test_channels_last_is_passed_without_a_copy() -> None:
    x = torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)
    before = report.copied_bytes()
    check(lambda x: torch.relu(x) + 1, x)
    assert report.copied_bytes() == before


def test_results_that_are_views_of_arguments() -> None:
    x = torch.randn(3, 4)
    run = compiled(lambda x: (x.t(), x[1:], x, x.unsqueeze(0) + 1))
    found = run(x)
    assert_same(found, (x.t(), x[1:], x, x.unsqueeze(0) + 1))
    assert found[0].data_ptr() == x.data_ptr()
    assert found[1]._base is x or found[1].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("dtype", "dynamic"),
    [(torch.int64, False), (torch.int64, True), (torch.float32, False), (torch.int16, False)],
)
def test_results_that_are_views_of_another_dtype(dtype: torch.dtype, dynamic: bool) -> None:
    """Where the slice ends at a symbol, AOTAutograd takes the result's own place in memory for the view's; of a dtype
    of another size it makes an error, whatever the backend."""

    def sliced(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[1 : y.shape[0]].view(dtype)

    torch._dynamo.reset()
    run = torch.compile(sliced, backend="luminal", dynamic=dynamic)
    for rows in (3, 4):
        x, y = torch.randn(5, 4, dtype=torch.float64), torch.zeros(rows)
        found = run(x, y)
        assert found.dtype == dtype
        assert_same([found.view(torch.float64)], [sliced(x, y).view(torch.float64)])
        assert found.data_ptr() == x[1:].data_ptr()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_large_results_stay_valid_after_later_calls(dynamic: bool) -> None:
    run = compiled(lambda x: x.t() * 2, dynamic=dynamic)
    x = torch.randn(512, 2048)
    first = run(x)
    second = run(x + 1)
    assert_same(first, x.t() * 2)
    assert_same(second, (x.t() + 1) * 2)
    assert first.data_ptr() != second.data_ptr()
    assert not first._is_view()


def test_two_results_of_one_value() -> None:
    check(lambda x: (y := x + 1, y, y.view(-1)), torch.randn(3, 4))


# ---- mutation --------------------------------------------------------------------------------------------------


def _index_copy(cache: torch.Tensor, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(2, place, k)
    return (cache * 2).sum(-1)


def _index_put(cache: torch.Tensor, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[:, :, place] = k
    return cache @ k.transpose(-1, -2)


def _nested_slices(cache: torch.Tensor, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[1, :, 3:4] = k[0]
    return cache.sum() + place


def _nested_index(cache: torch.Tensor, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[1][:, place] = k[0]
    return cache.sum()


def _strided_slice(cache: torch.Tensor, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[:, 1::2, -1:] = k[:, :2]
    return cache + place


def _accumulate(cache: torch.Tensor, k: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[0].index_put_((torch.tensor([1, 1]), place), k[0, :2, 0], accumulate=True)
    return cache.sum()


UPDATES = [_index_copy, _index_put, _nested_slices, _nested_index, _strided_slice, _accumulate]


@pytest.mark.parametrize("update", UPDATES, ids=lambda f: f.__name__.strip("_"))
def test_a_write_into_a_cache_writes_the_update_only(update: object) -> None:
    cache, k, place = torch.zeros(2, 4, 16, 8), torch.randn(2, 4, 1, 8), torch.tensor([5])
    before = report.copied_bytes()
    with Imports() as imports:
        check(update, cache, k, place, calls=2)  # type: ignore[arg-type]
    assert report.copied_bytes() == before
    (graph,) = imports.graphs
    assert len(graph.updates) == 1
    ((output, given),) = graph.updates
    function = next(iter(graph.module.ops))
    assert isinstance(function, GraphOp)
    written = function.outputs[output].owner
    assert isinstance(written, HloOp) and written.name == "hlo.index_put"
    assert written.operands[0] is function.block.args[given]


@pytest.mark.skipif(TARGET != "cpu", reason="asks what the native kernels write")
@pytest.mark.parametrize("update", UPDATES[:4], ids=lambda f: f.__name__.strip("_"))
def test_kernels_write_the_update_only(update: object) -> None:
    cache, k, place = torch.zeros(2, 4, 16, 8), torch.randn(2, 4, 1, 8), torch.tensor([5])
    with collect() as dumps, torch.no_grad():
        compiled(update)(cache, k, place)  # type: ignore[arg-type]
    (levels,) = dumps
    written = [_elements(region) for region in levels["regions"].split("region ") if " alias " in region]
    assert written and sum(written) <= k.numel()


def _elements(region: str) -> int:
    """The elements that the output over an input's memory writes."""
    sizes = {name: int(size) for name, size in re.findall(r"index (\w+) = (\d+)", region)}
    (over,) = re.findall(r"over \[([^\]]*)\].* alias", region)
    return math.prod(sizes[name] for name in over.split())


def test_a_whole_tensor_is_overwritten() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(x * 2 + y)
        return y + x[:1]

    check(function, torch.randn(3, 4), torch.randn(3, 4), calls=3)


def test_an_updated_argument_that_is_not_row_major() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    base, other = torch.arange(24.0).view(3, 8), torch.arange(24.0).view(3, 8)
    run = compiled(function)
    assert_same(run(base[:, ::2]), function(other[:, ::2]))
    assert_same(base, other)


def test_an_updated_transposed_argument() -> None:
    base, other = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        x[1:3].mul_(2)
        return x.sum()

    before = report.copied_bytes()
    assert_same(compiled(function)(base.t()), function(other.t()))
    assert_same(base, other)
    assert report.copied_bytes() == before


def test_two_arguments_that_exchange_values() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> None:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    check(function, torch.randn(5), torch.randn(5))


def test_batch_norm_statistics() -> None:
    check(lambda m, x: m(x), torch.nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4), calls=2)


def test_dynamic_sizes_with_an_update() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        x[:, :n] += 1
        return x * n

    check(function, torch.randn(3, 10), 4, dynamic=True)


def test_arguments_that_overlap_after_a_call_where_they_did_not() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    run = compiled(function)
    run(torch.randn(4), torch.randn(4))
    base, other = torch.arange(8.0), torch.arange(8.0)
    assert_same(run(base[0:4], base[2:6]), function(other[0:4], other[2:6]))
    assert_same(base, other)


def test_arguments_side_by_side_in_one_storage_do_not_overlap() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    run = compiled(function)
    run(torch.randn(4), torch.randn(4))
    base, other = torch.arange(8.0), torch.arange(8.0)
    assert_same(run(base[0:4], base[4:8]), function(other[0:4], other[4:8]))
    assert_same(base, other)


def _after_a_part(x: torch.Tensor) -> torch.Tensor:
    repeated = x.expand(2, *x.shape)
    x[2:].zero_()
    return repeated


def _after_all(x: torch.Tensor) -> torch.Tensor:
    repeated = x.expand(2, *x.shape)
    x.mul_(2)
    return repeated


def _part_after_all(x: torch.Tensor) -> torch.Tensor:
    rest = x[1:]
    x.mul_(2)
    return rest


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [_after_a_part, _after_all, _part_after_all])
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: torch.arange(9.0)[1::2], id="gaps"),
        pytest.param(lambda: torch.arange(9.0)[3:], id="offset"),
        pytest.param(lambda: torch.arange(20.0).view(4, 5)[:, 1:], id="columns"),
    ],
)
def test_a_view_of_an_updated_input_lies_as_in_eager(
    given: Callable[[], torch.Tensor], function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool
) -> None:
    """AOTAutograd lays it over the input by the strides and the offset of what the graph returns."""
    updated, expected = given(), given()
    result = torch.compile(function, backend="luminal", dynamic=dynamic)(updated)
    assert_same(result, function(expected))
    assert_same(updated, expected)
    assert result.untyped_storage().data_ptr() == updated.untyped_storage().data_ptr()


def _sharing(outputs: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """For each output the first one in the same memory, and where in that memory it begins."""
    storages = [output.untyped_storage().data_ptr() for output in outputs]
    return [(storages.index(one), output.storage_offset()) for one, output in zip(storages, outputs)]


SHARING: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "a tensor and views of it": lambda x: (y := x * 2, y.T, y[1:], y.reshape(-1)),
    "parts without the whole": lambda x: (x @ x).chunk(3, -1),
    "what is repeated": lambda x: ((y := x + 1).expand(3, *y.shape), y),
    "bits": lambda x: ((y := x + 1), y.view(torch.int32)),
    "equal values apart": lambda x: (x + 1, (x + 1).clone()),
    "a copy": lambda x: ((y := x + 1), y.contiguous(), y.T.contiguous()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SHARING)
def test_outputs_share_memory_as_in_eager(name: str, dynamic: bool) -> None:
    function, x = SHARING[name], torch.randn(6, 6)
    found, expected = check(function, x, dynamic=dynamic), function(x)
    assert _sharing(found) == _sharing(expected)
    found[-1].add_(1), expected[-1].add_(1)
    assert all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))


def test_outputs_share_memory_where_a_size_turns_out_to_be_another_ones_double() -> None:
    """What a guard says of the size is said of it as it is read: as twice the other one."""

    def parts(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.expand(x.shape[0], 2 * y.shape[0], 2 * y.shape[0])
        z = x.logical_and(x[0, 0])
        return z.unsqueeze(-1), z.unsqueeze(-2)

    run = compiled(parts, dynamic=True)
    for count in (8, 5):
        x, y = torch.randn(3, 2 * count, 2 * count), torch.randn(count)
        found, expected = run(x, y), parts(x, y)
        assert _sharing(found) == _sharing(expected)
        assert [one.stride() for one in found] == [one.stride() for one in expected]


def test_gradients_flow_through_outputs_that_share_memory() -> None:
    torch._dynamo.reset()
    function = compiled(lambda x: (x @ x).chunk(3, -1))
    a, b = (torch.ones(6, 6, requires_grad=True) for _ in range(2))
    for run, x in ((function, a), (lambda x: (x @ x).chunk(3, -1), b)):
        first, second, third = run(x)
        (first.sum() + 2 * (second * third).sum()).backward()
    assert a.grad is not None and b.grad is not None and torch.allclose(a.grad, b.grad)


@pytest.mark.parametrize("sizes", [(4, 5), (5, 9), (7, 8)])
def test_a_view_of_an_updated_input_begins_where_eagers_does(sizes: tuple[int, int]) -> None:
    """AOTAutograd lays such a view over the input at the offset of what the graph returns."""

    def update(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        part = x[x.shape[0] // 2 : z.shape[0] : 2, -3 : x.shape[1]]
        x.copy_(y)
        return part

    run = compiled(update, dynamic=True)
    for rows, columns in (sizes, (6, 6)):
        x, y, z = torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(rows + 1)
        mine = x.clone()
        found, expected = run(mine, y, z), update(x, y, z)
        assert torch.equal(found, expected) and found.storage_offset() == expected.storage_offset()
        assert found.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (5, 5)])
def test_a_part_of_a_turned_result_lies_at_an_offset_as_turned_as_eagers(
    shape: tuple[int, int], dynamic: bool
) -> None:
    def update(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mT.add_(1)
        whole = x.detach()
        return whole.mT.split(2, -1)[1], x.split(2, -1)[1], whole

    run = compiled(update, dynamic=dynamic)
    mine = torch.arange(float(shape[0] * shape[1])).reshape(shape)
    theirs = mine.clone()
    for found, expected in zip((*run(mine), mine), (*update(theirs), theirs), strict=True):
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        assert found.storage_offset() == expected.storage_offset()


@pytest.mark.parametrize("dynamic", [False, True])
def test_masks_write_through_views(dynamic: bool) -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        last = x[-1]
        last[last > 0] = 5.0
        y[:, 1:][y[:, 1:] < 0] = -5.0
        return last

    check(write, torch.randn(4, 6), torch.randn(2, 5), dynamic=dynamic)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
def test_strided_writes_go_where_the_memory_is(shape: tuple[int, int]) -> None:
    """fill_diagonal_ and as_strided count in memory, whose order is not that of the axes."""

    def write(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        x.fill_diagonal_(7.0)
        return y.as_strided((3, 2), (2, 3), 1) * 1, x.as_strided((2, 2), (1, 2)) * 1

    for x in (torch.randn(shape), torch.randn(shape).t()):
        check(write, x)


def test_a_strided_view_of_what_does_not_fill_its_memory_is_an_error() -> None:
    """Torch would be given a copy, which has other strides: a wrong result."""
    x = torch.randn(8, 6)[:, ::2]
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="does not fill its memory"):
        compiled(lambda x: x.as_strided((2, 2), (1, 2)) * 1, strict=False)(x)
