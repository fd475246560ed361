"""Evaluates the e-nodes of a saturated e-graph in NumPy, each class from each of its nodes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from luminal.dialects.kernel.elementwise import evaluate_elementwise
from luminal.dialects.kernel.terms import Affine, Region, Term
from luminal.dtype import f64, from_bits
from luminal.search.egraph import Classes, Node

Array = NDArray[Any]
ANY = {"m": 2, "n": 6}
"""Sizes of the indices that may have any."""
_FOLDS = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


class Values:
    """Values of classes over all indices, in f64; loads are random, the same for the same address."""

    def __init__(self, region: Region, classes: Classes, seed: int = 0) -> None:
        self.region, self.classes = region, classes
        self.axes = {name: axis for axis, name in enumerate(classes.indices)}
        self.sizes = [region.extents[name].evaluate(ANY) for name in classes.indices]
        rng = np.random.default_rng(seed)
        self.arguments = [rng.standard_normal(a.elements.evaluate(ANY)) for a in region.arguments]
        self.known: dict[int, Array] = {}
        self._settle()

    def _settle(self) -> None:
        """The value of each class, from its first node whose operands are known."""
        waiting = dict(self.classes.nodes)
        while waiting:
            done: dict[int, Node] = {}
            for number, nodes in waiting.items():
                ready = [n for n in nodes if all(operand in self.known for operand in n.operands)]
                if ready:
                    done[number] = ready[0]
            assert done, "the e-graph has a class without a well-founded node"
            for number, node in done.items():
                self.known[number] = self.value(node)
                waiting.pop(number, None)

    def value(self, node: Node) -> Array:
        """The value of one e-node, over all indices."""
        operands = [self.known[operand] for operand in node.operands]
        with np.errstate(all="ignore"):
            if node.op == "leaf":
                return self._leaf(self.classes.leaves[node.bits])
            if node.op == "empty":
                empty = any(self.sizes[self.axes[name]] == 0 for name in self.classes.names(node.bits))
                return np.full(self.sizes, empty)
            if node.op == "constant":
                assert node.dtype is not None
                return np.full(self.sizes, float(from_bits(node.bits, node.dtype)))
            axes = tuple(self.axes[name] for name in self.classes.names(node.bits))
            if node.op == "reduce":
                folded = _FOLDS[cast(str, node.variant)](operands[0], axis=axes, keepdims=True)
                return np.broadcast_to(folded, self.sizes)
            if node.op == "weighted":
                score, factor = operands
                base = 2.0 if node.variant == "exp2.2" else np.e
                weights = base ** (score - score.max(axis=axes, keepdims=True))
                return np.broadcast_to((weights * factor).sum(axis=axes, keepdims=True), self.sizes)
            if node.op == "moment":
                (value,) = operands
                centred = value - value.mean(axis=axes, keepdims=True)
                return np.broadcast_to((centred * centred).sum(axis=axes, keepdims=True), self.sizes)
            return evaluate_elementwise(node.op, node.variant, operands, f64)

    def _leaf(self, term: Term) -> Array:
        assert term.op == "load" and not term.operands
        address = np.zeros(self.sizes, np.int64)
        affine: Affine = term.load.address
        for name, stride in affine.strides:
            shape = [1] * len(self.sizes)
            shape[self.axes[name]] = -1
            places = np.arange(self.sizes[self.axes[name]]).reshape(shape)
            address = address + places * stride.evaluate(ANY)
        return self.arguments[term.load.argument][address + affine.offset.evaluate(ANY)]
