"""The e-graph of a region: its terms as e-nodes, saturated by tables of rules within budgets.

Elementwise terms and reductions over one value are e-nodes that rules see; every other term (loads, indices, scans ...)
is a leaf.  `free` has the indices that a value may depend on, as bits: the meet of what equal forms depend on.  What is
known of indices, dtypes and constants are facts that rules ask for.  No rule calls Python, and nothing depends on the
order of a hash table, so that equal regions saturate to equal e-graphs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from egglog import bindings

from luminal.dialects.kernel.terms import ELEMENTWISE, Region, Term
from luminal.dim import Dim, as_dim, known_less, product
from luminal.dtype import DType, bool_, to_bits
from luminal.errors import LuminalError
from luminal.search.rules.rule import EXACT, Rule

_SPAN = bindings.RustSpan("", 0, 0)
_DECLARATIONS = """
(datatype E
  (Leaf i64) (Empty i64)
  (Constant i64 i64)
  (Apply1 String i64 E) (Apply2 String i64 E E) (Apply3 String i64 E E E)
  (Reduce String i64 i64 E)
  (Weighted String i64 i64 E E)
  (Moment i64 i64 E))
(function free (E) i64 :merge (& old new))
(function filled () i64 :merge (& old new))
(relation float (i64))
(relation number (String i64 i64))
(relation exponential (String))
(relation tame (E i64))
(relation root (i64 E))
(relation count (i64 i64 E))
(ruleset ingest) (ruleset facts)
(rule ((= e (Constant t c))) ((set (free e) 0)) :ruleset facts)
(rule ((= e (Empty j))) ((set (free e) 0)) :ruleset facts)
(rule ((= e (Apply1 o t a)) (= x (free a))) ((set (free e) x)) :ruleset facts)
(rule ((= e (Apply2 o t a b)) (= x (free a)) (= y (free b))) ((set (free e) (| x y))) :ruleset facts)
(rule ((= e (Apply3 o t a b c)) (= x (free a)) (= y (free b)) (= z (free c)))
      ((set (free e) (| x (| y z)))) :ruleset facts)
(rule ((= e (Reduce o j t a)) (= x (free a))) ((set (free e) (& x (not-i64 j)))) :ruleset facts)
(rule ((= e (Weighted o j t c a)) (= x (free c)) (= y (free a)))
      ((set (free e) (& (| x y) (not-i64 j)))) :ruleset facts)
(rule ((= e (Moment j t a)) (= x (free a))) ((set (free e) (& x (not-i64 j)))) :ruleset facts)
"""
NODES = ("Leaf", "Constant", "Empty", "Apply1", "Apply2", "Apply3", "Reduce", "Weighted", "Moment")
MOST_INDICES = 62
EXPONENTIALS = ("exp2.e", "exp2.2")
"""Exponentials with a constant base: exp2 with a base above one."""
NUMBERS = {"zero": 0.0, "one": 1.0, "minus one": -1.0}
"""Constants that rules ask for by name."""


class EGraphLimitError(LuminalError, RuntimeError):
    """A region does not fit into an e-graph: it has more indices than bits."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What saturation may cost: rounds of all rules, rows in all, and seconds."""

    rounds: int = 12
    rows: int = 20_000
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Node:
    """An e-node: `operands` are numbers of e-classes.

    `op`: an elementwise operation, "reduce", "weighted" or "moment" (rules/folds.py), "constant", "empty" or "leaf";
    `variant`: that of an elementwise operation, the monoid of a reduction, the exponential of a weighted sum; `bits`:
    the value of a constant, the indices that a fold binds, those of which "empty" says that one has no value, the
    number of a leaf.
    """

    op: str
    variant: str | None
    dtype: DType | None
    bits: int
    operands: tuple[int, ...]


@dataclass
class Classes:
    """A saturated e-graph, read once: the e-nodes of each e-class, those of leaves first, and the classes of the roots.

    `free` has the bits of the indices that each class depends on; `rounds` and `is_saturated` say how it ended.
    """

    nodes: dict[int, list[Node]]
    roots: tuple[int, ...]
    free: dict[int, int]
    indices: tuple[str, ...]
    leaves: tuple[Term, ...]
    rounds: int = 0
    is_saturated: bool = False

    def names(self, bits: int) -> tuple[str, ...]:
        """The indices of some bits."""
        return tuple(name for position, name in enumerate(self.indices) if bits >> position & 1)


@dataclass
class EGraph:
    """The e-graph of a region's terms under some rules; `licences` are those that the rules may use."""

    region: Region
    rules: Sequence[Rule]
    licences: frozenset[str]

    def __post_init__(self) -> None:
        self.indices = tuple(sorted({i for term in self.region.terms() for i in (*term.free, *term.reduced)}))
        if len(self.indices) > MOST_INDICES:
            raise EGraphLimitError(f"the region has {len(self.indices)} indices; {MOST_INDICES} fit")
        self.dtypes: list[DType] = []
        self.leaves: list[Term] = []
        self.graph = bindings.EGraph()
        licensed = [rule for rule in self.rules if rule.licence == EXACT or rule.licence in self.licences]
        self.rulesets = list(
            dict.fromkeys(rule.licence for rule in sorted(licensed, key=lambda r: r.licence != EXACT))
        )
        self._run(_DECLARATIONS + "".join(f"(ruleset {name})\n" for name in self.rulesets))
        self._run("\n".join(rule.text for rule in licensed))
        self._ingest()

    def _run(self, text: str) -> list[bindings._CommandOutput]:
        return self.graph.run_program(*self.graph.parse_program(text))

    def bits(self, indices: frozenset[str] | tuple[str, ...]) -> int:
        return sum(1 << self.indices.index(index) for index in indices)

    # ---- terms to e-nodes

    def _ingest(self) -> None:
        """All terms as one rule of lets, whose head runs once."""
        names: dict[Term, str] = {}
        actions: list[bindings._Action] = [bindings.Set(_SPAN, "filled", [], _integer(self._filled()))]
        actions += [_fact("exponential", _string(name)) for name in EXPONENTIALS]
        for number, term in enumerate(self.region.terms()):
            names[term] = f"t{number}"
            actions.append(bindings.Let(_SPAN, names[term], self._expression(term, names)))
            if is_leaf(term):
                free = _integer(self.bits(term.free))
                actions.append(bindings.Set(_SPAN, "free", [_variable(names[term])], free))
        roots = [names[term] for output in self.region.outputs for term in output.terms]
        actions += [_fact("root", _integer(n), _variable(name)) for n, name in enumerate(roots)]
        actions += [
            _fact("count", _integer(bound), _integer(self._dtype(term.dtype)), _variable(names[term]))
            for term, bound in self._counts()
        ]
        for position, dtype in enumerate(self.dtypes):
            if dtype.is_float:
                actions.append(_fact("float", _integer(position)))
                for name, value in NUMBERS.items():
                    bits = _signed(to_bits(value, dtype))
                    actions.append(_fact("number", _string(name), _integer(position), _integer(bits)))
        self.graph.run_program(
            bindings.RuleCommand(bindings.Rule(_SPAN, actions, [], "ingest", "ingest")),
            bindings.RunSchedule(bindings.Run(_SPAN, bindings.RunConfig("ingest"))),
        )

    def _counts(self) -> Iterator[tuple[Term, int]]:
        """Floats that say how many values the indices of a sum have, with the bits of those."""
        terms = self.region.terms()
        sums = dict.fromkeys(t.reduce.indices for t in terms if t.op == "reduce" and t.reduce.monoid == "sum")
        for indices, term in itertools.product(sums, terms):
            if term.dtype.is_float and self._is_count(term, product(self.region.extents[i] for i in indices)):
                yield term, self.bits(indices)

    @staticmethod
    def _is_count(term: Term, size: Dim) -> bool:
        if term.op == "constant" and size.constant is not None:
            return cast(int, term.attribute) == to_bits(float(size.constant), term.dtype)
        return (
            term.op == "cast"
            and term.operands[0].op == "dimension"
            and cast(Dim, term.operands[0].attribute) == size
        )

    def _expression(self, term: Term, names: Mapping[Term, str]) -> bindings._Expr:
        operands = [_variable(names[operand]) for operand in term.operands]
        if is_leaf(term):
            self.leaves.append(term)
            return _call("Leaf", _integer(len(self.leaves) - 1))
        dtype = _integer(self._dtype(term.dtype))
        if term.op == "constant":
            return _call("Constant", dtype, _integer(_signed(cast(int, term.attribute))))
        if term.op == "reduce":
            bound = _integer(self.bits(frozenset(term.reduce.indices)))
            return _call("Reduce", _string(term.reduce.monoid), bound, dtype, *operands)
        name = f"{term.op}.{term.attribute}" if term.attribute is not None else term.op
        return _call(f"Apply{len(operands)}", _string(name), dtype, *operands)

    def _dtype(self, dtype: DType) -> int:
        if dtype not in self.dtypes:
            self.dtypes.append(dtype)
        return self.dtypes.index(dtype)

    def _filled(self) -> int:
        """The indices that have at least one value, whatever the sizes."""
        return self.bits(tuple(i for i in self.indices if known_less(as_dim(0), self.region.extents[i])))

    # ---- saturation

    def saturate(self, budget: Budget) -> Classes:
        """Run the exact rules, then those of licences, round by round until nothing is new or the budget is spent."""
        schedule = "(saturate (run facts))"
        schedule += "".join(f"(run {name}) (saturate (run facts))" for name in self.rulesets)
        started, rounds, done = time.perf_counter(), 0, False
        while rounds < budget.rounds and not done:
            reports = self._run(f"(run-schedule {schedule})")
            rounds += 1
            done = not any(cast(bindings.RunScheduleOutput, each).report.updated for each in reports)
            if self._rows() > budget.rows or time.perf_counter() - started > budget.seconds:
                break
        return self._read(rounds, done)

    def _rows(self) -> int:
        (sizes,) = self._run("(print-size)")
        return sum(count for _, count in cast(bindings.PrintAllFunctionsSize, sizes).sizes)

    def _read(self, rounds: int, done: bool) -> Classes:
        frozen = self.graph.freeze()
        numbers: dict[object, int] = {}
        nodes: dict[int, list[Node]] = {}
        for name in NODES:
            for row in frozen.functions[name].rows:
                number = numbers.setdefault(row.output, len(numbers))
                nodes.setdefault(number, [])
        for name in NODES:
            for row in frozen.functions[name].rows:
                nodes[numbers[row.output]].append(self._node(name, row.inputs, numbers))
        roots = {self._int(row.inputs[0]): numbers[row.inputs[1]] for row in frozen.functions["root"].rows}
        free = {numbers[row.inputs[0]]: self._int(row.output) for row in frozen.functions["free"].rows}
        return Classes(
            nodes,
            tuple(roots[n] for n in range(len(roots))),
            free,
            self.indices,
            tuple(self.leaves),
            rounds,
            done,
        )

    def _node(self, name: str, inputs: Sequence[bindings.Value], numbers: Mapping[object, int]) -> Node:
        if name == "Leaf":
            return Node("leaf", None, None, self._int(inputs[0]), ())
        if name == "Empty":
            return Node("empty", None, bool_, self._int(inputs[0]), ())
        if name == "Moment":
            operands = (numbers[inputs[2]],)
            return Node("moment", None, self.dtypes[self._int(inputs[1])], self._int(inputs[0]), operands)
        if name == "Constant":
            dtype = self.dtypes[self._int(inputs[0])]
            return Node("constant", None, dtype, self._int(inputs[1]) & (2**64 - 1), ())
        variant = self.graph.value_to_string(inputs[0])
        if name in ("Reduce", "Weighted"):
            operands = tuple(numbers[value] for value in inputs[3:])
            return Node(
                name.lower(), variant, self.dtypes[self._int(inputs[2])], self._int(inputs[1]), operands
            )
        op, _, kind = variant.partition(".")
        operands = tuple(numbers[value] for value in inputs[2:])
        return Node(op, kind or None, self.dtypes[self._int(inputs[1])], 0, operands)

    def _int(self, value: bindings.Value) -> int:
        return self.graph.value_to_i64(value)


def is_leaf(term: Term) -> bool:
    """Whether rules see nothing of a term's inside."""
    if term.op == "reduce":
        return len(term.operands) != 1
    return term.op != "constant" and term.op not in ELEMENTWISE


def _signed(bits: int) -> int:
    """Bits as the i64 that has them."""
    return bits - (1 << 64) if bits >> 63 else bits


def _variable(name: str) -> bindings._Expr:
    return bindings.Var(_SPAN, name)


def _integer(value: int) -> bindings._Expr:
    return bindings.Lit(_SPAN, bindings.Int(value))


def _string(value: str) -> bindings._Expr:
    return bindings.Lit(_SPAN, bindings.String(value))


def _call(name: str, *arguments: bindings._Expr) -> bindings._Expr:
    return bindings.Call(_SPAN, name, list(arguments))


def _fact(relation: str, *arguments: bindings._Expr) -> bindings._Action:
    return bindings.Expr_(_SPAN, _call(relation, *arguments))
