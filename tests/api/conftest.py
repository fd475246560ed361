"""The runtimes that every test of the Graph API goes through. A new runtime is one more line of RUNTIMES."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from luminal.runtimes.cpu import CPURuntime
from luminal.runtimes.protocol import Runtime
from luminal.runtimes.reference import ReferenceRuntime
from luminal.search import trial

RUNTIMES: dict[str, Callable[[], Runtime]] = {
    "hlo": lambda: ReferenceRuntime(level="hlo"),
    "primitive": lambda: ReferenceRuntime(level="primitive"),
    "cpu": CPURuntime,
}


@pytest.fixture(autouse=True)
def ordinary_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compared with the reference on ordinary data alone: results are compared with torch's, on NaN,
    infinities and other sizes too, and the search's own tests are about hostile data."""
    monkeypatch.setattr(trial, "hostile_sizes", lambda *given: ())


@pytest.fixture(params=list(RUNTIMES), scope="session")
def make_runtime(request: pytest.FixtureRequest) -> Callable[[], Runtime]:
    """A function that makes a runtime of each kind."""
    return RUNTIMES[request.param]
