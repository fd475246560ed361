"""Gives a region its canonical form, so that regions which do the same have the same text and key.

Indices that every access and every reduction treats as one become one (stride(p) = stride(q) * size(q) everywhere);
indices are then named i0, i1 ... (those of outputs, by falling stride) and r0, r1 ... (those that are reduced),
arguments by their first load and symbols d0, d1 ... by their first occurrence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from luminal.dialects.kernel.region_text import natural_key
from luminal.dialects.kernel.terms import (
    Affine,
    LoadAttribute,
    LoopAttribute,
    Output,
    ReduceAttribute,
    Region,
    ScanAttribute,
    Term,
    TermTable,
)
from luminal.dim import Dim, Symbol, dim, symbol_dim, typical


@dataclass(frozen=True)
class Canonical:
    """A region in canonical form: what its arguments and symbols were called, and what became of its terms."""

    region: Region
    arguments: tuple[int, ...]
    symbols: Mapping[str, Dim]
    terms: Mapping[Term, Term]


def canonical_region(region: Region) -> Canonical:
    """The canonical form of a region.  The order of the indices of an output that updates an argument is kept: writes
    that meet are in that order, i0 outermost."""
    terms = region.terms()
    sizes, gone = _coalesce(region, terms)
    names = _index_names(region, terms, sizes)
    arguments = _argument_order(region, terms)
    symbols = _symbol_names(region, terms, names, sizes)
    rename = _Renaming(names, gone, {old: new for new, old in enumerate(arguments)}, symbols)
    table = TermTable()
    renamed: dict[Term, Term] = {}
    for term in terms:
        operands = tuple(renamed[operand] for operand in term.operands)
        renamed[term] = table.make(
            term.op, operands, rename.attribute(term), term.dtype, rename.indices(term.free)
        )
    result = Region(
        table,
        {name: rename.dim(sizes[old]) for old, name in names.items()},
        [replace(a, elements=rename.dim(a.elements)) for a in (region.arguments[old] for old in arguments)],
        [rename.output(output, renamed) for output in region.outputs],
        [renamed[term] for term in region.inner if term in renamed],
        {
            names[part]: (names[whole], weight)
            for part, (whole, weight) in region.parents.items()
            if part in names
        },
        region.is_strict,
        region.factors,
    )
    given = {new.name: symbol_dim(old) for old, new in symbols.items()}
    return Canonical(result, tuple(arguments), given, renamed)


class _Renaming:
    """New names for indices, arguments and symbols, applied to whatever mentions them."""

    def __init__(
        self,
        names: Mapping[str, str],
        gone: Mapping[str, str],
        arguments: Mapping[int, int],
        symbols: Mapping[Symbol, Symbol],
    ) -> None:
        self.names, self.gone, self.arguments = names, gone, arguments
        self.sizes = {old.name: symbol_dim(new) for old, new in symbols.items()}

    def dim(self, value: Dim) -> Dim:
        return value if value.constant is not None else value.substitute(self.sizes)

    def indices(self, free: Iterable[str]) -> frozenset[str]:
        return frozenset(self.names[name] for name in free if name not in self.gone)

    def affine(self, value: Affine) -> Affine:
        kept = {self.names[name]: self.dim(stride) for name, stride in value.strides if name not in self.gone}
        return Affine.of(kept, self.dim(value.offset))

    def attribute(self, term: Term) -> object:
        match term.attribute:
            case Affine() as affine:
                return self.affine(affine)
            case Dim() as value:
                return self.dim(value)
            case LoadAttribute() as load:
                return load._replace(
                    argument=self.arguments[load.argument], address=self.affine(load.address)
                )
            case ReduceAttribute(monoid, indices):
                return ReduceAttribute(monoid, tuple(sorted(self.indices(indices))))
            case ScanAttribute(monoid, index):
                return ScanAttribute(monoid, self.names[index])
            case LoopAttribute() as loop:
                carries = tuple(map(self.indices, loop.carries))
                return replace(loop, index=self.names[loop.index], carries=carries)
            case other:
                return other

    def output(self, output: Output, terms: Mapping[Term, Term]) -> Output:
        return replace(
            output.mapped(terms.__getitem__),
            elements=self.dim(output.elements),
            address=self.affine(output.address),
            alias=self.arguments.get(output.alias, -1),
            indices=self.indices(output.indices),
        )


def _accesses(region: Region, terms: Sequence[Term]) -> list[Affine]:
    """Every affine expression of indices, in an order that follows structure alone."""
    found = [output.address for output in region.outputs]
    for term in terms:
        if term.op == "load":
            found.append(term.load.address)
        elif term.op == "index":
            found.append(cast(Affine, term.attribute))
    return found


def _is_ordered(output: Output) -> bool:
    """Whether two writes of an output may meet, so that the order of its indices has a meaning."""
    return output.dynamic is not None or output.alias >= 0


def _coalesce(region: Region, terms: Sequence[Term]) -> tuple[dict[str, Dim], dict[str, str]]:
    """The sizes of the indices that stay, and which index each of the others has become part of."""
    groups = [set(term.reduce.indices) for term in terms if term.op == "reduce"]
    groups += [set(output.indices) for output in region.outputs]
    used = set().union(*groups, *(term.free for term in terms))
    sizes = {name: region.extents[name] for name in sorted(used, key=natural_key)}
    accesses = [dict(affine.strides) for affine in dict.fromkeys(_accesses(region, terms))]
    fixed = set(region.parents) | {whole for whole, _ in region.parents.values()}
    for term in terms:
        if isinstance(term.attribute, ScanAttribute | LoopAttribute):
            fixed.add(term.attribute.index)
    ordered = [sorted(o.indices, key=natural_key) for o in region.outputs if _is_ordered(o)]
    gone: dict[str, str] = {}

    def join(inner: str) -> bool:
        first = next((access for access in accesses if inner in access), None)
        if first is None or inner in fixed:
            return False
        for outer in [name for name in first if name != inner and name not in fixed]:
            same = all(a.get(outer) == (a[inner] * sizes[inner] if inner in a else None) for a in accesses)
            if not same or any((outer in group) != (inner in group) for group in groups):
                continue
            if any(inner in order and order.index(outer) + 1 != order.index(inner) for order in ordered):
                continue
            sizes[inner] = sizes[inner] * sizes.pop(outer)
            gone[outer] = inner
            for group in (*groups, *accesses):
                group.discard(outer) if isinstance(group, set) else group.pop(outer, None)
            for order in ordered:
                if outer in order:
                    order.remove(outer)
            return True
        return False

    for name in list(sizes):
        while name in sizes and join(name):
            pass
    return sizes, gone


def _index_names(region: Region, terms: Sequence[Term], sizes: Mapping[str, Dim]) -> dict[str, str]:
    accesses = [dict(affine.strides) for affine in _accesses(region, terms)]

    def falling(name: str) -> tuple[int, tuple[tuple[int, int | str], ...]]:
        first = next((access[name] for access in accesses if name in access), None)
        return (0 if first is None else -abs(typical(first)), natural_key(name))

    names: dict[str, str] = {}
    for output in region.outputs:
        order = sorted(output.indices & sizes.keys(), key=natural_key if _is_ordered(output) else falling)
        for name in order:
            names.setdefault(name, f"i{len(names)}")
    count = len(names)
    for term in terms:
        bound: Iterable[str] = ()
        if term.op == "reduce":
            bound = sorted(set(term.reduce.indices) & sizes.keys(), key=falling)
        elif term.op == "loop":
            bound = (term.loop.index,)
        for name in bound:
            names.setdefault(name, f"r{len(names) - count}")
    for name in sizes:
        names.setdefault(name, f"r{len(names) - count}")
    return names


def _argument_order(region: Region, terms: Sequence[Term]) -> list[int]:
    loaded = [term.load.argument for term in terms if term.op == "load"]
    return list(dict.fromkeys([*loaded, *(output.alias for output in region.outputs if output.alias >= 0)]))


def _symbol_names(
    region: Region, terms: Sequence[Term], names: Mapping[str, str], sizes: Mapping[str, Dim]
) -> dict[Symbol, Symbol]:
    dims = [sizes[name] for name in names]
    dims += [d for a in _accesses(region, terms) for d in (*(stride for _, stride in a.strides), a.offset)]
    dims += [cast(Dim, term.attribute) for term in terms if term.op == "dimension"]
    dims += [value.elements for value in (*region.outputs, *region.arguments)]
    found: dict[Symbol, Symbol] = {}
    for value in dims:
        for symbol in sorted(value.symbols(), key=lambda symbol: symbol.name):
            name = f"d{len(found)}"
            if symbol not in found:
                found[symbol] = next(iter(dim(name, symbol.minimum, symbol.maximum).symbols()))
    return found
