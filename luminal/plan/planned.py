"""What every executable of a plan says of itself, whatever it runs on."""

from __future__ import annotations

from typing import Any

from luminal.dialects.tensor_type import TensorType
from luminal.plan.plan import Plan
from luminal.stats import Stats


class Planned:
    """The facts of a plan: its dims, inputs, outputs and updates."""

    def __init__(self, plan: Plan, stats: Stats) -> None:
        self.plan, self._stats = plan, stats
        self.dim_names = tuple(symbol.name for symbol in plan.symbols)
        constants = set(plan.constants)
        self.call_inputs = tuple(n for n in range(len(plan.inputs)) if n not in constants)
        """Positions of the inputs that every call gives, in the order of `run_pointers`."""
        self._constants = tuple(position for position in plan.constants if position < plan.given)
        """Positions of the constant inputs that callers give; folds compute the others."""

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return self.plan.inputs[: self.plan.given]

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return self.plan.outputs

    @property
    def updates(self) -> tuple[tuple[int, int], ...]:
        """Pairs (output, input): the output is written into the input's memory."""
        return self.plan.updates

    @property
    def stats(self) -> dict[str, Any]:
        return self._stats.as_dict()
