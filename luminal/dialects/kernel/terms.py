"""Terms over indices: what a region computes, as a hash-consed graph that knows no operator by name.

A region of primitives becomes terms: loads at index expressions, elementwise operations, reductions over indices and
carried loops.  A term has an operation, operands, an attribute, a dtype and a set of free indices; equal terms are one
object of the region's own table.  Everything in a region is inlined, so fusion is a matter of where a term is computed,
which a `Schedule` says and `luminal.passes.place` carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from luminal.dim import Dim, as_dim, known_less, product, typical
from luminal.dtype import DType, bf16, bool_, f16, f32, i8, i16, i32, i64, u8

Attribute = object


@dataclass(frozen=True, slots=True)
class Affine:
    """offset + sum of index * stride, in elements; `strides` is sorted by index name and holds no zero stride."""

    strides: tuple[tuple[str, Dim], ...]
    offset: Dim

    @staticmethod
    def of(strides: Mapping[str, Dim | int], offset: Dim | int = 0) -> Affine:
        kept = ((name, as_dim(stride)) for name, stride in strides.items())
        return Affine(tuple(sorted((n, s) for n, s in kept if s.constant != 0)), as_dim(offset))

    def stride(self, index: str) -> Dim:
        """The stride of an index; 0 where it does not occur."""
        return dict(self.strides).get(index, as_dim(0))

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.strides)

    def plus(self, other: Affine) -> Affine:
        total = dict(self.strides)
        for name, stride in other.strides:
            total[name] = total.get(name, as_dim(0)) + stride
        return Affine.of(total, self.offset + other.offset)

    def times(self, factor: Dim | int) -> Affine:
        return Affine.of({n: s * factor for n, s in self.strides}, self.offset * factor)

    def __str__(self) -> str:
        parts = [name if stride.constant == 1 else f"({stride})*{name}" for name, stride in self.strides]
        if self.offset.constant != 0 or not parts:
            parts.append(f"({self.offset})")
        return " + ".join(parts)


class LoadAttribute(NamedTuple):
    """What a load reads: argument number, affine address in elements, and which optional operands follow.

    Operands: an i64 term added to the address if `dynamic`, then a bool term if `guarded`; where the guard is false
    nothing is read and the value is zero.
    """

    argument: int
    address: Affine
    dynamic: bool
    guarded: bool


class ReduceAttribute(NamedTuple):
    """A reduction's monoid (sum, prod, max, min, argmax, argmin) and the indices that it binds, sorted."""

    monoid: str
    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanAttribute:
    """An inclusive prefix reduction along one index, which stays free."""

    monoid: str
    index: str


@dataclass(frozen=True, slots=True)
class LoopAttribute:
    """A carried loop: its index, an identifier that its carries name, and the free indices of each carry."""

    index: str
    identifier: int
    carries: tuple[frozenset[str], ...]


# name -> number of operands; the attribute is the primitive's variant (base, phase, rounding, sign, kind, predicate).
ELEMENTWISE: Mapping[str, int] = {
    "log2": 1, "exp2": 1, "sin": 1, "sqrt": 1, "cast": 1,
    "recip": 2, "add": 2, "mul": 2, "mod": 2, "bits": 2, "less_than": 2, "max": 2, "min": 2,
    "select": 3,
}  # fmt: skip
PAIRED_MONOIDS = ("argmax", "argmin")
WIDENS: Mapping[DType, tuple[DType, ...]] = {f32: (bf16, f16), i32: (i8, u8, i16)}
"""What a cast to a dtype leaves as it is: the narrower dtypes whose products are summed in it."""


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """One node; compared by identity, since its table holds equal nodes once."""

    op: str
    operands: tuple[Term, ...]
    attribute: Attribute
    dtype: DType
    free: frozenset[str]
    number: int

    def __repr__(self) -> str:
        return f"%{self.number}:{self.op}"

    @property
    def load(self) -> LoadAttribute:
        return cast(LoadAttribute, self.attribute)

    @property
    def reduce(self) -> ReduceAttribute:
        return cast(ReduceAttribute, self.attribute)

    @property
    def reduced(self) -> tuple[str, ...]:
        """The indices that a reduction binds; of other terms none."""
        return self.reduce.indices if self.op == "reduce" else ()

    @property
    def factors(self) -> tuple[Term, ...]:
        """The two factors of what a sum of float products adds up; of other terms none."""
        is_sum = self.op == "reduce" and self.reduce.monoid == "sum" and self.dtype.is_float
        return self.operands[0].operands if is_sum and self.operands[0].op == "mul" else ()

    @property
    def scan(self) -> ScanAttribute:
        return cast(ScanAttribute, self.attribute)

    @property
    def loop(self) -> LoopAttribute:
        return cast(LoopAttribute, self.attribute)

    @property
    def inits(self) -> tuple[Term, ...]:
        """What the carries of a loop start from."""
        return self.operands[: len(self.loop.carries)]

    @property
    def nexts(self) -> tuple[Term, ...]:
        """The values of a loop's carries for the next iteration."""
        count = len(self.loop.carries)
        return self.operands[count : 2 * count]

    @property
    def guard(self) -> Term | None:
        """Of a loop: where it holds, iterations that need not run may be left out (`luminal.passes.needed`)."""
        return next(iter(self.operands[2 * len(self.loop.carries) :]), None)


class TermTable:
    """The hash-consing table of one region; a term's number is its place in the order of creation."""

    def __init__(self) -> None:
        self._terms: dict[object, Term] = {}
        self._loops = 0

    def make(
        self,
        op: str,
        operands: tuple[Term, ...],
        attribute: Attribute,
        dtype: DType,
        free: frozenset[str] | None = None,
    ) -> Term:
        if free is None:
            free = frozenset().union(*(operand.free for operand in operands))
        key = (op, tuple(id(operand) for operand in operands), attribute, dtype.name, free)
        found = self._terms.get(key)
        if found is None:
            found = self._terms[key] = Term(op, operands, attribute, dtype, free, len(self._terms))
        return found

    def constant(self, bits: int, dtype: DType) -> Term:
        return self.make("constant", (), bits, dtype)

    def index(self, value: Affine) -> Term:
        """The i64 value of an affine expression of indices."""
        if not value.strides:
            return self.dimension(value.offset)
        return self.make("index", (), value, i64, value.indices)

    def dimension(self, value: Dim) -> Term:
        """The i64 value of a dim; a constant where the dim is one."""
        if value.constant is not None:
            return self.constant(value.constant & (2**64 - 1), i64)
        return self.make("dimension", (), value, i64)

    def read(
        self,
        argument: int,
        address: Affine,
        dtype: DType,
        dynamic: Term | None = None,
        guard: Term | None = None,
    ) -> Term:
        operands = tuple(term for term in (dynamic, guard) if term is not None)
        free = address.indices.union(*(operand.free for operand in operands))
        attribute = LoadAttribute(argument, address, dynamic is not None, guard is not None)
        return self.make("load", operands, attribute, dtype, free)

    def apply(self, op: str, operands: tuple[Term, ...], variant: str | None, dtype: DType) -> Term:
        return self.make(op, operands, variant, dtype)

    def reduce(self, monoid: str, indices: Iterable[str], operands: tuple[Term, ...]) -> Term:
        """operands: the value; for argmax and argmin the value and its i64 position, which is the result."""
        bound = tuple(sorted(indices))
        free = frozenset().union(*(operand.free for operand in operands)) - set(bound)
        return self.make("reduce", operands, ReduceAttribute(monoid, bound), operands[-1].dtype, free)

    def scan(self, monoid: str, index: str, value: Term) -> Term:
        return self.make("scan", (value,), ScanAttribute(monoid, index), value.dtype, value.free | {index})

    def carries(self, index: str, kinds: list[tuple[DType, frozenset[str]]]) -> list[Term]:
        """Fresh carries for a loop over `index`: their values at the start of an iteration."""
        identifier, self._loops = self._loops, self._loops + 1
        return [
            self.make("carry", (), (identifier, position), dtype, free | {index})
            for position, (dtype, free) in enumerate(kinds)
        ]

    def loop(
        self,
        index: str,
        carries: list[Term],
        inits: list[Term],
        nexts: list[Term],
        guard: Term | None = None,
    ) -> list[Term]:
        """loop(index, inits, step): the carried values after the last iteration; the one form of every fold."""
        identifier = cast(tuple[int, int], carries[0].attribute)[0]
        kinds = tuple(carry.free - {index} for carry in carries)
        attribute = LoopAttribute(index, identifier, kinds)
        free = frozenset().union(*kinds)
        operands = (*inits, *nexts, *([] if guard is None else [guard]))
        body = self.make("loop", operands, attribute, carries[0].dtype, free)
        return [
            self.make("project", (body,), position, carry.dtype, kinds[position])
            for position, carry in enumerate(carries)
        ]


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor in flat memory that a region reads: dtype, addressable elements, whether it never changes."""

    dtype: DType
    elements: Dim
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor in flat memory that a region writes: `term` at every value of its indices, at an affine address.

    `dynamic` is an i64 term added to the address, `guard` a bool term (nothing is written where it is false) and
    `combine` how a write meets what is there (set, add, mul, max, min).  `alias` numbers the argument whose memory
    this is, -1 for none.
    """

    term: Term
    elements: Dim
    address: Affine
    dynamic: Term | None = None
    guard: Term | None = None
    combine: str = "set"
    alias: int = -1
    indices: frozenset[str] = frozenset()

    @property
    def dtype(self) -> DType:
        return self.term.dtype

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for term in (self.term, self.dynamic, self.guard) if term is not None)

    def mapped(self, change: Callable[[Term], Term]) -> Output:
        """The output of what its terms become."""
        dynamic, guard = (None if term is None else change(term) for term in (self.dynamic, self.guard))
        return replace(self, term=change(self.term), dynamic=dynamic, guard=guard)


@dataclass
class Region:
    """What one kernel computes.

    `extents` gives every index its size; `inner` lists terms that were roots of regions merged into this one, which a
    schedule may keep in a buffer.  `parents` says of an index that the terms themselves split (j = jo*64 + ji) which
    index each part belongs to and its weight there.  `is_strict`: a float operation of it is, so no licence applies to
    any of its terms, which do not say whose they are.  `factors`: the dtype that the program rounds every factor of its
    sums of products to, which the terms need not say: under the licence keep-wide they may round it, or not.  Indices,
    arguments and symbols bear canonical names, so that equal regions have equal text, which is their key.
    """

    table: TermTable
    extents: dict[str, Dim]
    arguments: list[Argument]
    outputs: list[Output]
    inner: list[Term] = field(default_factory=list[Term])
    parents: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    is_strict: bool = False
    factors: DType | None = None
    _walked: tuple[tuple[Term, ...], tuple[Term, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The terms, and of which results they are."""

    def whole(self, index: str) -> tuple[str, int]:
        """The index that this one is a part of, and the weight of the part; an index of its own is its own whole."""
        return self.parents.get(index, (index, 1))

    def dims(self) -> list[Dim]:
        """All sizes, strides and offsets that the region mentions."""
        dims = [*self.extents.values(), *(argument.elements for argument in self.arguments)]
        for term in self.terms():
            if term.op == "load":
                dims += _affine_dims(term.load.address)
            elif term.op == "index":
                dims += _affine_dims(cast(Affine, term.attribute))
            elif term.op == "dimension":
                dims.append(cast(Dim, term.attribute))
        for output in self.outputs:
            dims += [output.elements, *_affine_dims(output.address)]
        return dims

    @property
    def symbols(self) -> list[str]:
        """The names of the symbolic sizes that the region depends on, sorted."""
        return sorted({symbol.name for dim in self.dims() for symbol in dim.symbols()})

    def terms(self) -> tuple[Term, ...]:
        """All terms that the outputs need, operands before users, in an order that follows structure alone."""
        roots = tuple(term for output in self.outputs for term in output.terms)
        if self._walked is None or self._walked[0] != roots:
            self._walked = roots, tuple(postorder(roots))
        return self._walked[1]

    def numbering(self) -> dict[Term, int]:
        """The canonical number of each term, which schedules and the printed form use."""
        return {term: number for number, term in enumerate(self.terms())}

    def is_ordered(self, output: Output) -> bool:
        """Whether an output's writes may meet, so that they run in the natural order of its indices, one by one."""
        if output.dynamic is not None or output.combine != "set" or output.indices != output.address.indices:
            return True
        digits = sorted(output.address.strides, key=lambda part: typical(part[1]))
        reach = as_dim(0)
        for index, stride in digits:
            if not known_less(reach, stride):
                return True
            reach = reach + stride * (self.extents[index] - 1)
        return False

    def elements(self, term: Term) -> Dim:
        """How many values a term has over its free indices."""
        return product(self.extents[name] for name in sorted(term.free))


def _affine_dims(address: Affine) -> list[Dim]:
    return [address.offset, *(stride for _, stride in address.strides)]


def postorder(roots: Iterable[Term]) -> Iterator[Term]:
    """Terms reachable from the roots, each once, operands first."""
    seen: set[Term] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        term, expanded = stack.pop()
        if expanded:
            yield term
            continue
        if term in seen:
            continue
        seen.add(term)
        stack.append((term, True))
        stack += [(operand, False) for operand in reversed(term.operands)]


def rewritten(
    region: Region, change: Callable[[TermTable, Term, Mapping[Term, Term]], Term | None]
) -> Region:
    """The region in a table of its own, operands first: `change` is told what earlier terms have become, and gives what
    a term becomes, None for the same of its new operands."""
    table, new = TermTable(), dict[Term, Term]()
    for term in region.terms():
        changed = change(table, term, new)
        operands = tuple(new[operand] for operand in term.operands)
        same = (term.op, operands, term.attribute, term.dtype, term.free)
        new[term] = table.make(*same) if changed is None else changed
    outputs = [output.mapped(new.__getitem__) for output in region.outputs]
    inner = [new[term] for term in region.inner if term in new]
    return replace(region, table=table, outputs=outputs, inner=inner)


def is_narrow(term: Term) -> bool:
    """Whether a term is the exact conversion of a float of 16 bits or less."""
    if term.op != "cast" or term.dtype is not f32:
        return False
    source = term.operands[0].dtype
    return source.is_float and source.bits <= 16


def depends_on(term: Term, other: Term) -> bool:
    """Whether the value of `term` needs that of `other`."""
    return any(found is other for found in postorder([term]))


def predicate(table: TermTable, left: Term, right: Term, kind: str = "lt") -> Term:
    return table.apply("less_than", (left, right), kind, bool_)


def widened(term: Term) -> Term | None:
    """What a cast makes wider for a sum of products, without rounding it; None where a term is no such cast."""
    narrow = WIDENS.get(term.dtype, ())
    return term.operands[0] if term.op == "cast" and term.operands[0].dtype in narrow else None


def is_narrow_product(term: Term) -> bool:
    """Whether a term sums up products of narrow integers in i32."""
    if term.op != "reduce" or term.reduce.monoid != "sum" or term.dtype is not i32:
        return False
    (product,) = term.operands
    return product.op == "mul" and all(widened(factor) is not None for factor in product.operands)
