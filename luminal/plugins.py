"""What stands outside the package and is found through entry points: backends and dialects.

Group `luminal.backends`: an object with `compile(module, options)`, which takes a module with one
`luminal.graph` at hlo level and returns an `Executable`. Its entry point's name is the target's.

Group `luminal.dialects`: an xDSL `Dialect`, or a function that returns one. Operations that are rows of the
hlo table (`luminal.dialects.hlo.table.define`) bring their decomposition along and need no pass of their own.

docs/extending.md walks through one of each.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect

from luminal.errors import LuminalError, UnsupportedTargetError
from luminal.options import CompileOptions

if TYPE_CHECKING:
    from luminal.runtimes.protocol import Executable

BACKENDS = "luminal.backends"
DIALECTS = "luminal.dialects"


class PluginError(LuminalError, ImportError):
    """A plug-in cannot be loaded, or is not what its group asks for."""


class Backend(Protocol):
    """A target from outside: hlo in, something that runs out."""

    def compile(self, module: ModuleOp, options: CompileOptions) -> Executable: ...


def backend_names() -> list[str]:
    """The targets that plug-ins offer, sorted."""
    return sorted({entry.name for entry in entry_points(group=BACKENDS)})


def find_backend(name: str, built_in: tuple[str, ...] = ()) -> Backend:
    """The plug-in for a target; UnsupportedTargetError where there is none, naming those that there are."""
    found = list(entry_points(group=BACKENDS, name=name))
    if not found:
        known = ", ".join(repr(target) for target in (*built_in, *backend_names()))
        raise UnsupportedTargetError(f"target {name!r} is not known; targets are {known or 'none'}")
    backend = _load(found[0])
    if not callable(getattr(backend, "compile", None)):
        raise PluginError(f"{_named(found[0])} must have compile(module, options), but {backend!r} has none")
    return backend


def plugin_dialects() -> list[Dialect]:
    """The dialects of all plug-ins, sorted by name; loading one adds its rows to the hlo table."""
    dialects: list[Dialect] = []
    for entry in sorted(entry_points(group=DIALECTS), key=lambda entry: entry.name):
        loaded = _load(entry)
        dialect = loaded if isinstance(loaded, Dialect) else loaded() if callable(loaded) else loaded
        if not isinstance(dialect, Dialect):
            raise PluginError(
                f"{_named(entry)} must be an xDSL Dialect or a function that returns one, not {dialect!r}"
            )
        dialects.append(dialect)
    return dialects


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise PluginError(f"{_named(entry)} cannot be loaded: {error}") from error


def _named(entry: EntryPoint) -> str:
    return f"plug-in {entry.name!r} ({entry.value}) of the group {entry.group}"
