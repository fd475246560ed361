"""The first cuts of a graph, from which a search starts.

The first cuts end a region after what elementwise code makes of a contraction, keep what is costly to compute twice,
and leave no reduction inside its own index.  They are a seed: every one of them can be moved (cut_moves.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from luminal.dialects.kernel.terms import Region, Term, postorder
from luminal.dim import as_dim, known_equal, known_less, product
from luminal.passes.cuts import Cuts, Group, Partition
from luminal.passes.index_algebra import reshape_groups
from luminal.passes.region_former import Instance
from luminal.passes.region_terms import RegionTooLargeError
from luminal.passes.value_graph import REDUCTIONS, SPLATS, VIEWS, Value

_WEIGHTS: Mapping[str, int] = {
    "cast": 0, "add": 1, "mul": 1, "select": 1, "less_than": 1, "bits": 1, "max": 1, "min": 1, "pad": 1, "gather": 4,
    "recip": 4, "mod": 4, "sqrt": 4, "log2": 8, "exp2": 8, "sin": 8, "sum_reduce": 1000, "max_reduce": 1000,
}  # fmt: skip
_COSTLY = 4
"""The weight of arithmetic from which a value is rather kept than computed twice."""
_WIDE = 3
"""As many loads are dearer to repeat than one load of a kept value."""
_DECODING = 40
"""The weight of arithmetic up to which an element of a quantised parameter is decoded where it is used."""
_MOST = 1 << 20
RESHAPES = ("permute", "reshape")
_LONGEST = 400
"""Steps of elementwise code that are followed behind a contraction."""


def initial_cuts(partition: Partition) -> Cuts:
    """Cuts whose every region has a schedule and repeats little."""
    if partition.first is None:
        partition.first = _initial_cuts(partition)
    return partition.first


def _initial_cuts(partition: Partition) -> Cuts:
    kept = _First(partition).kept
    while True:
        cuts = Cuts(frozenset(kept))
        try:
            found = set(_conflicts(partition, cuts)) - kept
            _form_others(partition, cuts)
        except RegionTooLargeError as error:
            found = {error.value}
        if not found:
            return cuts
        kept |= found


def instances(partition: Partition, cuts: Cuts) -> list[tuple[Group, Instance]]:
    """The regions of the roots under some cuts."""
    return list(zip(partition.groups(cuts), partition.instances(cuts), strict=True))


def _form_others(partition: Partition, cuts: Cuts) -> None:
    """Form the regions that store no root; RegionTooLargeError where one repeats too much."""
    memory = partition.memory(partition.groups(cuts))
    for value in partition.graph.values:
        if value.op == "scatter" and not value.is_empty:
            partition.former.scattered(value, memory[value.number], memory)
        partition.former.checked(value, memory)


class _First:
    def __init__(self, partition: Partition) -> None:
        self.partition, self.graph = partition, partition.graph
        self.roots = set(partition.required | partition.stored)
        self.kept: set[int] = set()
        outer = {value: sums for value in self.graph.values if (sums := _sums_of_blocks(value))}
        blocks = list(outer)
        contractions = [v for v in self.graph.values if is_contraction(v) and v not in outer]
        whole = {sum_.number: sum_ for sums in outer.values() for sum_ in sums if sum_ not in contractions}
        self.contractions = {value.number for value in contractions} | whole.keys()
        epilogues: dict[Value, Value] = {}
        for value in (*contractions, *whole.values()):
            epilogues[value] = self._settled(value, self._epilogue(value))
            self._keep(epilogues[value])
        self.blocks = {value.number for value in blocks}
        for value in self.graph.values:
            self._keep_reduced(value)
            self._keep_nested(value)
        self.weights, self.loads = self._weigh()
        for value in (*contractions, *blocks):
            self._keep_operands(value)
        for value in self.graph.values:
            self._keep_vector(value)
        self.weights, self.loads = self._weigh()
        self._keep_shared()
        for value, root in epilogues.items():
            self._keep_apart(root, value)

    def _keep(self, value: Value) -> None:
        if value.op not in SPLATS and not value.is_empty:
            self.kept.add(value.number)
            self.roots.add(value.number)

    def _epilogue(self, value: Value) -> Value:
        """The furthest value where all that elementwise code makes of a contraction meets again."""
        last, front = value, {value}
        for _ in range(_LONGEST):
            first = min(front, key=lambda found: found.number)
            if len(front) == 1 and first.op not in RESHAPES:
                if first is not value and (
                    self._holds_other(first, value) or self._turns_cheaply(first, last)
                ):
                    return last
                last = first
            follows = first.users and all(user.is_elementwise or user.op in RESHAPES for user in first.users)
            if not follows or (first.number in self.roots and first is not value):
                return last
            front = (front - {first}) | set(first.users)
        return last

    def _turns_cheaply(self, value: Value, source: Value) -> bool:
        """Whether a value is one cheap step from another with its axes in another order: better left to its readers,
        so that what is stored keeps the order in which it is computed."""
        weight, turned, stack, seen = 0, False, [value], set[int]()
        while stack:
            found = stack.pop()
            if found is source or found.op in SPLATS or found.number in seen:
                continue
            seen.add(found.number)
            if found.number in self.roots and found is not value:
                return False
            weight += _WEIGHTS.get(found.op, 0)
            turned |= found.op == "permute"
            stack += found.operands
        return turned and weight < _COSTLY

    def _settled(self, contraction: Value, root: Value) -> Value:
        """What a batched contraction computes is laid out for its reader, where that is no batched one."""
        if not _is_batched(contraction):
            return root
        end = root
        while len(end.users) == 1 and end.users[0].op in RESHAPES and end.number not in self.roots:
            end = end.users[0]
        readers = [end]
        for reader in readers:
            readers += [
                user for user in reader.users if user.op in VIEWS or user.op in ("cast", "mul", "sum_reduce")
            ]
            if reader.number in self.contractions or len(readers) > _LONGEST:
                return root if _is_batched(reader) else end
        return root

    def _holds_other(self, value: Value, own: Value) -> bool:
        """Whether the region of a value would hold a contraction beside `own`."""
        stack, seen = [value], set[int]()
        while stack:
            found = stack.pop()
            if found.number in seen or found is own or (found.number in self.roots and found is not value):
                continue
            seen.add(found.number)
            if found.number in self.contractions:
                return True
            stack += found.operands
        return False

    def _keep_apart(self, root: Value, own: Value) -> None:
        """Keep other reductions behind a contraction that read nothing of what it reads: they have no place in its
        loops."""
        reads = self._leaves(own)
        stack, seen = [root], {own.number}
        while stack:
            found = stack.pop()
            if found.number in seen or (found.number in self.roots and found is not root):
                continue
            seen.add(found.number)
            if found.op in REDUCTIONS and not self._leaves(found) & reads:
                self._keep(found)
            else:
                stack += found.operands

    def _leaves(self, value: Value) -> set[int]:
        """The values in memory, constants apart, that a value is computed from."""
        stack, seen, leaves = list(value.operands), set[int](), set[int]()
        while stack:
            found = stack.pop()
            if found.number in seen or found.op in SPLATS or found.number in self.partition.former.constants:
                continue
            seen.add(found.number)
            if found.number in self.roots or not found.operands:
                leaves.add(found.number)
            else:
                stack += found.operands
        return leaves

    def _keep_reduced(self, value: Value) -> None:
        """Keep what a reduction folds where it alone needs another reduction with as many results, which has no place
        in its loops: what is made of those results stays in their region, and takes no more memory than they."""
        if value.op not in REDUCTIONS:
            return
        source = value.operands[0]
        stack, cone = [source], dict[int, Value]()
        while stack:
            found = stack.pop()
            if found.number not in cone and found.number not in self.roots:
                cone[found.number] = found
                stack += found.operands
        count, made = product(source.shape), set[int]()
        for number, found in sorted(cone.items()):
            is_other = (
                found.op in REDUCTIONS
                and found.number not in self.blocks
                and known_equal(product(found.shape), count)
            )
            if not is_other and all(operand.number not in made for operand in found.operands):
                continue
            made.add(number)
            if found is not source and any(user.number not in cone for user in found.users):
                return
        if made:
            self._keep(source)

    def _keep_nested(self, value: Value) -> None:
        """Keep other reductions that vary along what a reduction folds: no nest of loops would hold them, and regions
        of steps that follow each other, as those of a recurrent network, are not formed whole to find that out."""
        if value.op not in REDUCTIONS:
            return
        stack = [(value.operands[0], frozenset(value.integers("axes")))]
        seen: set[tuple[int, frozenset[int]]] = set()
        while stack:
            found, axes = stack.pop()
            if not axes or (found.number, axes) in seen or found.number in self.roots:
                continue
            seen.add((found.number, axes))
            if found.op in REDUCTIONS and found.number not in self.blocks:
                self._keep(found)
            elif found.is_elementwise or found.op in VIEWS:
                stack += [(operand, _along(found, operand, axes)) for operand in found.operands]

    def _weigh(self) -> tuple[list[int], list[int]]:
        """For each value, the arithmetic and the loads of computing one element from the roots so far.

        Cheap arithmetic of positions and constants counts nothing: most of it becomes part of an address.
        """
        weights, loads = list[int](), list[int]()
        for value in self.graph.values:
            weight, load = _WEIGHTS.get(value.op, 0), 0
            for operand in value.operands:
                if operand.number in self.roots:
                    load += 1
                else:
                    weight, load = weight + weights[operand.number], load + loads[operand.number]
            weights.append(0 if weight < _COSTLY and not load else min(weight, _MOST))
            loads.append(min(load, _MOST))
        return weights, loads

    def _keep_operands(self, contraction: Value) -> None:
        """Keep what a contraction multiplies, where computing it for every use costs more than a load: as narrow as it
        is cast, but no decoded parameter, which takes more memory than what it is decoded from."""
        for factor in _factors(contraction):
            narrow, source = self._narrowest(factor)
            dear = self.weights[narrow.number] >= _COSTLY and source.number not in self.roots
            if dear and not self._is_decoded(narrow):
                self._keep(narrow)

    def _keep_vector(self, value: Value) -> None:
        """Keep what all rows of a parameter are multiplied by, which is computed for each of them otherwise."""
        for vector, matrix in itertools.permutations(_factors(value), 2):
            if not _grows(vector) or _grows(matrix) or matrix.op in SPLATS or self._leaves(matrix):
                continue
            narrow, source = self._narrowest(vector)
            if narrow.number not in self.roots and source.op not in SPLATS:
                self._keep(narrow)

    def _narrowest(self, value: Value) -> tuple[Value, Value]:
        """What a value is a view or a cast of, where it takes least memory, and what that is made of in turn."""
        narrow, source = value, value
        while source.op in VIEWS or source.op == "cast":
            if source.number in self.roots:
                break
            source = source.operands[0]
            if source.dtype.size_bytes <= narrow.dtype.size_bytes:
                narrow = source
        return narrow, source

    def _is_decoded(self, value: Value) -> bool:
        """Whether a value is made of parameters that take less memory, by a few operations for each element."""
        if self.weights[value.number] > _DECODING:
            return False
        size, stack, seen = as_dim(0), [value], set[int]()
        while stack:
            found = stack.pop()
            if found.number in seen or found.op in SPLATS:
                continue
            seen.add(found.number)
            if found.number in self.partition.former.constants:
                size += product(found.shape) * found.dtype.size_bytes
            elif found.number in self.roots or not (found.is_elementwise or found.op in VIEWS):
                return False
            stack += found.operands
        return known_less(size, product(value.shape) * value.dtype.size_bytes)

    def _keep_shared(self) -> None:
        """Keep what several regions read, where it is costly or reads much."""
        reach: list[set[int]] = [set() for _ in self.graph.values]
        for value in reversed(self.graph.values):
            number = value.number
            dear = self.weights[number] >= _COSTLY or self.loads[number] >= _WIDE
            computes = value.is_elementwise or value.op in REDUCTIONS or value.op == "gather"
            if number not in self.roots and len(reach[number]) > 1 and dear and computes:
                self._keep(value)
            readers = {number} if number in self.roots else reach[number]
            for operand in value.operands:
                reach[operand.number] |= readers


def _along(value: Value, operand: Value, axes: frozenset[int]) -> frozenset[int]:
    """The axes of an operand of elementwise code or a view along which it varies where the value does along `axes`."""
    if value.op == "permute":
        order = value.integers("order")
        axes = frozenset(order[axis] for axis in axes)
    elif value.op == "window" and len(operand.shape) in axes:
        axes |= {value.integer("axis")}
    elif value.op == "reshape":
        axes = frozenset(
            axis
            for ours, theirs in reshape_groups(operand.shape, value.shape)
            if axes & {*theirs}
            for axis in ours
        )
    return frozenset(axis for axis in axes if axis < len(operand.shape) and operand.shape[axis] != 1)


def is_contraction(value: Value) -> bool:
    """Whether a value is a sum of products of two values that are both spread over more axes than they have."""
    factors = _factors(value)
    return bool(factors) and all(map(_grows, factors))


def _sums_of_blocks(value: Value) -> list[Value]:
    """The sums of floats that add up a sum of products of integers, if nothing else reads that: each of its numbers is
    scaled and belongs to the other sum, which would read it from memory otherwise."""
    if value.dtype.is_float or not _factors(value):
        return []
    front, found = list(value.users), list[Value]()
    for user in front:
        if user.op == "sum_reduce":
            if not user.dtype.is_float:
                return []
            found.append(user)
        elif len(front) > _LONGEST or not user.users or not (user.is_elementwise or user.op in VIEWS):
            return []
        else:
            front += [each for each in user.users if each not in front]
    return found


def _is_batched(value: Value) -> bool:
    """Whether a contraction has an axis of its own along which both factors vary."""
    varies: list[set[int]] = []
    for factor in _factors(value):
        axes = {axis for axis, size in enumerate(factor.shape) if size != 1}
        while factor.op in ("expand", "cast"):
            source = factor.operands[0]
            axes -= {axis for axis, size in enumerate(source.shape) if size == 1}
            factor = source
        varies.append(axes)
    return len(varies) == 2 and bool(varies[0] & varies[1] - set(value.integers("axes")))


def _factors(value: Value) -> tuple[Value, ...]:
    if value.op != "sum_reduce" or value.text("monoid") != "sum":
        return ()
    product = value.operands[0]
    while product.op == "cast":
        product = product.operands[0]
    return product.operands if product.op == "mul" else ()


def _grows(value: Value) -> bool:
    while value.op in VIEWS or value.op == "cast":
        source = value.operands[0]
        if value.op == "window" or (
            value.op == "expand" and not known_equal(product(value.shape), product(source.shape))
        ):
            return True
        value = source
    return False


# ---- what has no schedule


def _conflicts(partition: Partition, cuts: Cuts) -> Iterator[int]:
    """Values of reductions that would run inside their own index, or once for each step of another reduction."""
    known: dict[int, list[int]] = {}
    for _, instance in instances(partition, cuts):
        formed = instance.formed
        if id(formed) not in known:  # the layers of a model share a region
            found = conflicting_reductions(formed.region)
            known[id(formed)] = [formed.reductions[term] for term in found if term in formed.reductions]
        for local in known[id(formed)]:
            yield instance.cone[local].number


def conflicting_reductions(region: Region) -> list[Term]:
    """Reductions that no nest of loops can hold unless they are kept: those that are needed within another reduction
    over an index that they depend on, but for sums of products of narrow integers, and those that ask for an order of
    loops which others exclude."""
    found: dict[Term, None] = {}
    for output in region.outputs:
        terms = list(postorder(output.terms))
        below: dict[Term, frozenset[Term]] = {}
        orders: dict[Term, set[tuple[str, str]]] = {}
        for term in terms:
            held = frozenset().union(*(below[operand] for operand in term.operands))
            if term.op == "reduce":
                bound = set(term.reduce.indices)
                nested = (inner for inner in held if inner.free & bound and not _belongs(inner, term))
                found.update((inner, None) for inner in sorted(nested, key=terms.index))
                orders[term] = set(itertools.product(term.free, bound & output.indices))
                held |= {term}
            below[term] = held
        found.update((term, None) for term in orders if term not in found and _excluded(term, orders, found))
    return list(found)


def _belongs(inner: Term, outer: Term) -> bool:
    """Whether a sum of integers is computed once, within one step of a sum of floats: see `_sums_of_blocks`."""
    once = outer.free | set(outer.reduce.indices)
    return outer.dtype.is_float and inner.dtype.is_integer and once <= inner.free and _is_sum(inner, outer)


def _is_sum(*terms: Term) -> bool:
    return all(term.op == "reduce" and term.reduce.monoid == "sum" for term in terms)


def _excluded(term: Term, orders: Mapping[Term, set[tuple[str, str]]], gone: Iterable[Term]) -> bool:
    """Whether the order that a reduction asks for (its free indices around its bound ones) closes a circle."""
    left = set(gone)
    edges = {edge for other, wanted in orders.items() if other not in left for edge in wanted}
    for outer, inner in sorted(orders[term]):
        reached, stack = {inner}, [inner]
        while stack:
            place = stack.pop()
            following = {second for first, second in edges if first == place} - reached
            reached |= following
            stack += following
        if outer in reached:
            return True
    return False
