"""Searched cuts: stages of attention become one region, equal layers are cut alike, whatever the hash seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.dialects.graph_op import DEFAULT_LICENCES, GraphOp, build_graph, finish_graph
from luminal.dialects.hlo import HloBuilder
from luminal.dtype import i64
from luminal.passes.cut_choices import initial_cuts, instances
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.region_former import Instance
from luminal.passes.simplify import simplify
from luminal.runtimes.reference import graph_of as module_graph
from luminal.search.candidates import legal_candidates
from luminal.search.cut_search import CutSearch
from luminal.search.forms import Forms
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from tests.kernel.test_place import run_and_compare
from tests.passes.primitive_graphs import encoder, tensor
from tests.search.seeds import outputs_of_seeds

HOST = Machine(8, 16)


def attention(heads: int = 12, length: int = 128, width: int = 32) -> GraphOp:
    """Attention with an additive mask, rows of heads side by side as projections leave them."""
    rows, mask = tensor(1, length, heads, width), tensor(1, 1, 1, length)
    graph, block = build_graph("main", [], [rows, rows, rows, mask], DEFAULT_LICENCES)
    b = HloBuilder(block)
    q, k, v = (b.permute(x, order=(0, 2, 1, 3)) for x in block.args[:3])
    finish_graph(block, [b.permute(b.attention(q, k, v, block.args[3]), order=(0, 2, 1, 3))])
    module = ModuleOp([graph])
    lower_hlo(module)
    simplify(module)
    return module_graph(module)


def rows_of(
    body: Callable[[HloBuilder, SSAValue, SSAValue], list[SSAValue]], rows: int = 64, columns: int = 20_000
) -> Partition:
    """What is made of logits, and of a class of each row."""
    graph, block = build_graph("main", [], [tensor(rows, columns), tensor(rows, dtype=i64)], DEFAULT_LICENCES)
    finish_graph(block, body(HloBuilder(block), *block.args))
    module = ModuleOp([graph])
    lower_hlo(module)
    simplify(module)
    return Partition.of(module_graph(module))


def search(partition: Partition) -> Cuts:
    return CutSearch(partition, HOST, Samples({})).run()


def test_scores_maximum_and_numerator_of_attention_are_stages_of_one_region() -> None:
    partition = Partition.of(attention())
    before = instances(partition, initial_cuts(partition))
    after = instances(partition, search(partition))
    assert not any(group.inner for group, _ in before)
    ((group, instance),) = [found for found in after if found[0].inner]
    stages = [partition.graph.values[number].op for number in sorted(group.inner)]
    assert stages == ["add", "max_reduce", "exp2"]
    assert len(instance.formed.region.inner) == 3
    assert len(after) == len(before) - 3


def test_no_cuts_cost_more_than_the_first_ones() -> None:
    for graph in (attention(length=64), encoder(2, 8, 1)):
        partition = Partition.of(graph)
        prices = CutSearch(partition, HOST, Samples({}))
        assert prices.price(prices.run()).seconds <= prices.price(initial_cuts(partition)).seconds


def test_equal_layers_are_cut_alike() -> None:
    few, many = (Partition.of(encoder(2, 16, layers)) for layers in (2, 6))
    counts = [
        Counter(instance.formed.key for _, instance in instances(partition, search(partition)))
        for partition in (few, many)
    ]
    assert counts[0].keys() == counts[1].keys()
    in_each_layer = {key for key in counts[0] if counts[1][key] > counts[0][key]}
    assert in_each_layer
    assert all((counts[1][key] - counts[0][key]) % 4 == 0 for key in in_each_layer)


def test_cuts_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.search.test_cut_search import *\n"
        "for graph in (attention(), encoder(2, 8, 1)):\n"
        "    partition = Partition.of(graph)\n"
        "    cuts = search(partition)\n"
        "    print(cuts, [instance.formed.key for _, instance in instances(partition, cuts)])\n"
    )
    first, *others = outputs_of_seeds(code)
    assert first.count("merge") == 2
    assert others == [first] * len(others)


def losses(b: HloBuilder, x: SSAValue, target: SSAValue, rows: int = 64) -> SSAValue:
    """- log softmax, of the class of each row."""
    found = b.gather(b.log_softmax(x, axis=1), b.reshape(target, shape=(rows, 1)), axis=1)
    return b.neg(b.reshape(found, shape=(rows,)))


def extrema(b: HloBuilder, x: SSAValue, axis: int = 1) -> list[SSAValue]:
    return [b.max(x, axes=(1,)), b.argmax(x, axis=axis)]


def readers(partition: Partition, cuts: Cuts) -> list[Instance]:
    """The regions that read the logits."""
    logits = partition.graph.inputs[0].number
    return [found for _, found in instances(partition, cuts) if logits in found.arguments]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_of_a_row_is_computed_where_its_logits_are_read(reduction: str) -> None:
    partition = rows_of(lambda b, x, t: [getattr(b, reduction)(losses(b, x, t), axes=(0,))])
    cuts = search(partition)
    (found,) = readers(partition, cuts)
    assert found.formed.region.outputs[0].elements.constant == 64
    assert len(instances(partition, cuts)) == 2


@pytest.mark.parametrize(("rows", "columns"), [(1, 4000), (2, 2000)])
def test_the_mean_loss_of_few_rows_is_a_phase_of_the_kernel_that_reads_them(rows: int, columns: int) -> None:
    """Where a launch is a large part of both: the states of each row's parts, then the mean of what they make."""
    partition = rows_of(lambda b, x, t: [b.mean(losses(b, x, t, rows), axes=(0,))], rows, columns)
    found = CutSearch(partition, HOST, Samples({}), Forms(DEFAULT_LICENCES))
    (whole,) = instances(partition, found.run())
    form, candidate = found.leading[whole[1].formed.key]
    assert form.region.outputs[0].elements.constant == 1
    assert candidate.kind in ("phases", "parts") and candidate.schedule.kept
    assert candidate.form.startswith("in parts") == (rows == 1)


def test_a_result_that_others_need_too_is_kept_itself() -> None:
    """The norm of largest values, and those over it."""

    def body(b: HloBuilder, x: SSAValue, _: SSAValue) -> list[SSAValue]:
        largest = b.max(x, axes=(1,))
        return [b.div(largest, b.sum(b.mul(largest, largest), axes=(0,)))]

    partition = rows_of(body)
    (found,) = readers(partition, initial_cuts(partition))
    assert [term.op for term in found.formed.region.terms()] == ["load", "reduce"]


@pytest.mark.parametrize("columns", [200, 20_000])
def test_reductions_of_the_same_rows_are_one_region(columns: int) -> None:
    partition = rows_of(lambda b, x, _: extrema(b, x), columns=columns)
    (found,) = readers(partition, search(partition))
    assert len(found.formed.region.outputs) == 2


@pytest.mark.parametrize("kind", ["another axis", "no reduction"])
def test_what_has_other_results_or_reduces_nothing_is_not_joined(kind: str) -> None:
    def body(b: HloBuilder, x: SSAValue, _: SSAValue) -> list[SSAValue]:
        return [b.sin(x), b.exp(x)] if kind == "no reduction" else extrema(b, x, int(kind != "another axis"))

    assert not search(rows_of(body)).joined


def test_a_result_is_normalised_by_the_region_that_computes_it() -> None:
    """A sum and its rows over their squares: no region reads the sum again."""

    def body(b: HloBuilder, x: SSAValue, _: SSAValue) -> list[SSAValue]:
        total = b.add(x, b.sin(x))
        return [total, b.div(total, b.sum(b.mul(total, total), axes=(1,), keepdim=True))]

    partition = rows_of(body, columns=768)
    ((group, found),) = instances(partition, search(partition))
    assert len(group.roots) == 2
    region = found.formed.region
    candidate, _ = next(legal_candidates(region, HOST, Samples({})))
    run_and_compare(region, candidate.schedule, {})


def test_a_maximum_and_a_sum_that_needs_it_are_one_fold_of_long_rows() -> None:
    """Where others read both: the region has two results of one loop."""

    def body(b: HloBuilder, x: SSAValue, _: SSAValue) -> list[SSAValue]:
        largest = b.max(x, axes=(1,), keepdim=True)
        return [largest, b.sum(b.exp(b.sub(x, largest)), axes=(1,))]

    partition = rows_of(body, columns=300_000)
    found = CutSearch(partition, HOST, Samples({}), Forms(DEFAULT_LICENCES))
    (joined,) = readers(partition, found.run())
    assert len(joined.formed.region.outputs) == 2
    _, candidate = found.leading[joined.formed.key]
    assert candidate.form == "folds of 1024"
