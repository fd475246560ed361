"""The levels of the descent, each an xDSL dialect: hlo, primitive, kernel."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect


def _luminal() -> Dialect:
    from luminal.dialects.graph_op import LUMINAL

    return LUMINAL


def _hlo() -> Dialect:
    from luminal.dialects.hlo import dialect

    return dialect()


def _primitive() -> Dialect:
    from luminal.dialects.primitive.ops import PRIMITIVE

    return PRIMITIVE


def _kernel() -> Dialect:
    from luminal.dialects.kernel.dialect import KERNEL

    return KERNEL


BUILT_IN: dict[str, Callable[[], Dialect]] = {
    "builtin": lambda: Builtin,
    "luminal": _luminal,
    "hlo": _hlo,
    "primitive": _primitive,
    "kernel": _kernel,
}


def all_dialects() -> dict[str, Callable[[], Dialect]]:
    """Every dialect by name, made when it is first needed; those of plug-ins (entry points) come last."""
    from luminal.plugins import plugin_dialects

    found = dict(BUILT_IN)
    for dialect in plugin_dialects():
        found[dialect.name] = lambda dialect=dialect: dialect
    return found
