"""Searched cuts: stages of attention become one region, equal layers are cut alike, whatever the hash seed."""

from __future__ import annotations

from collections import Counter

from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.graph_op import DEFAULT_LICENCES, GraphOp, build_graph, finish_graph
from luminal.dialects.hlo import HloBuilder
from luminal.passes.cut_choices import initial_cuts, instances
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.simplify import simplify
from luminal.runtimes.reference import graph_of as module_graph
from luminal.search.cut_search import CutSearch
from luminal.search.machine import Machine
from luminal.search.samples import Samples
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
