"""What a suite of benchmarks says: cases, and the program of each; and where suites and peers are found.

A suite is a Python file with a list CASES, by its name in benchmarks/ or by its path. A peer is a Python file in
benchmarks/peers/, or one by its path, with `missing()` and `prepare(program, case, threads)`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from luminal.errors import LuminalError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

SUITES = Path(__file__).resolve().parent.parent.parent / "benchmarks"
PEERS = SUITES / "peers"


class BenchmarkError(LuminalError, RuntimeError):
    """A suite or a peer is missing, or the process of one failed."""


class LeftOutError(BenchmarkError):
    """What a measurement or a peer needs is not there; it says what."""


@dataclass(frozen=True)
class Quantised:
    """A weight that peers with quantised weights store in `format`: its `blocks` as GGUF stores them, u8 [outputs,
    bytes of a row], and what those hold, f32 [outputs, inputs]."""

    format: str
    weight: Tensor
    blocks: np.ndarray[Any, Any]


@dataclass(frozen=True)
class StoredModel:
    """A language model in a GGUF file, for peers that read those: the tokens `before`, whose keys and values are there,
    the tokens `ids` of a call, and the positions that caches hold."""

    path: Path
    before: tuple[int, ...]
    ids: tuple[int, ...]
    context: int


@dataclass(frozen=True)
class Program:
    """What every contender computes: `module(*inputs)`, which is a loss to train with where `training` says so.

    `formula(operations, *inputs, *weights)` is the same for peers that are not torch's.  `gflop`: of multiply-adds,
    each counted as two; `mbytes`: the least that is read and written.  Where they are None they are counted, by torch's
    counter and as inputs, parameters and results once.  `luminal`: what Luminal runs instead of `module`.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    formula: Callable[..., Any] | None = None
    weights: tuple[Tensor, ...] = ()
    quantised: Quantised | None = None
    luminal: nn.Module | None = None
    stored: StoredModel | None = None
    training: bool = False
    gflop: float | None = None
    mbytes: float | None = None


@dataclass(frozen=True)
class Case:
    """A row of a suite. `build(tiny)` makes its program, small where `tiny`; what it draws is seeded by the name.
    A module that cases share must seed what it draws itself, under torch.random.fork_rng: a process that is
    started anew begins with another case.

    `dtype` decides what error is allowed (luminal/bench/check.py); `dynamic`: compiled for all sizes, or for its own
    alone; `quick`: part of a quick run.
    """

    name: str
    dtype: str
    build: Callable[[bool], Program]
    dynamic: bool = False
    quick: bool = False


@dataclass(frozen=True)
class Prepared:
    """A program ready to run: `call` runs it to its end, `results` turns what that gives into arrays, `note` says
    after a call what a reader should know of how it runs."""

    call: Callable[[], Any]
    results: Callable[[Any], list[np.ndarray[Any, Any]]]
    note: Callable[[], str] = str


class Suite(Protocol):
    """What the file of a suite defines."""

    CASES: Sequence[Case]


class Peer(Protocol):
    """What the file of a peer defines."""

    def missing(self) -> str:
        """What must be installed for it and is not, or ""."""
        ...

    def prepare(self, program: Program, case: Case, threads: int) -> Prepared:
        """Whatever is done once: translation, compilation, laying out weights.  LeftOutError where it cannot."""
        ...


def absent(*packages: str) -> str:
    """Says of some packages which are not installed, or "" where all are."""
    return "; ".join(f"the package {name} is not installed" for name in packages if find_spec(name) is None)


def suite_file(name: str) -> Path:
    """The file of a suite: of a package, its `__init__.py`.  BenchmarkError names those that are known."""
    if (SUITES / name / "__init__.py").is_file() and name != PEERS.name:
        return SUITES / name / "__init__.py"
    path = Path(name) if name.endswith(".py") else SUITES / f"{name}.py"
    if not path.is_file() or (path.parent == SUITES and name not in suite_names()):
        known = ", ".join(suite_names()) or "none is installed"
        raise BenchmarkError(f"no suite {name!r}: there is no file {path}. Known by name: {known}")
    return path


def suite_names() -> list[str]:
    files = {entry.stem for entry in SUITES.glob("[!_]*.py") if "\nCASES" in entry.read_text()}
    packages = {
        entry.parent.name for entry in SUITES.glob("*/__init__.py") if "MEASUREMENTS" in entry.read_text()
    }
    return sorted(files | packages)


def load_suite(path: str | Path) -> Suite:
    return cast(Suite, _load(Path(path), "suite"))


def peer_file(name: str) -> Path:
    """The file of a peer.  BenchmarkError names those that are known."""
    path = Path(name) if name.endswith(".py") else PEERS / f"{name.replace('-', '_')}.py"
    if not path.is_file():
        known = ", ".join(sorted(entry.stem.replace("_", "-") for entry in PEERS.glob("[!_]*.py")))
        raise BenchmarkError(f"unknown peer {name!r}; known: {known}")
    return path


def load_peer(path: Path) -> Peer:
    return cast(Peer, _load(path, "peer"))


def _load(path: Path, kind: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"luminal_{kind}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BenchmarkError(f"{path} is no Python file")
    root = str(SUITES.parent)
    if root != sys.path[0]:  # suites and peers import their neighbours, no other package of that name
        sys.path.insert(0, root)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dynamo looks up by name where a function stands
    spec.loader.exec_module(module)
    return module
