"""Candidates on a device: the fastest is taken, one that is wrong is raised, and what was found is kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")

import luminal as lm
from luminal.compiler import compile_module
from luminal.dump import collect
from luminal.errors import DriverError, SoundnessError
from luminal.plan.gpu_executable import GpuExecutable
from luminal.plan.kernels import memory_view
from tests.emit_triton.double import Double, use_double


def graph() -> lm.Graph:
    cx = lm.Graph()
    cx.tensor((4, 32), name="x").softmax(dim=1).output()
    return cx


def compiled(**options: Any) -> GpuExecutable:
    chosen = {"candidates": 3, "cache": False, "verify": "ordinary", **options}
    found = compile_module(graph().module(), "sm_90", chosen)
    assert isinstance(found, GpuExecutable)
    return found


class Timed(Double):
    """The candidates take these seconds, in turn."""

    def __init__(self, *seconds: float) -> None:
        super().__init__()
        self.seconds: Iterator[float] = iter(seconds * 100)

    def time(self, run: Callable[[], None]) -> float:
        run()
        return next(self.seconds)


def test_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    for seconds in ((1.2, 1.0, 1.3), (1.0, 1.2, 1.3)):
        use_double(monkeypatch, Timed(*seconds))
        with collect() as levels:
            compiled()
        measured = [line for line in levels[0]["search"].splitlines() if "measured" in line]
        assert [line.split(" us")[0].split()[-1] for line in measured] == [f"{s * 1e6:.3g}" for s in seconds]
        chosen.append(levels[0]["schedules"].split(": ", 1)[1].strip())
        assert measured[seconds.index(min(seconds))].endswith(chosen[-1])
    assert chosen[0] != chosen[1]


def test_what_is_hopeless_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Timed(1.0, 2.0, 2.0, *[1.0] * 4)
    use_double(monkeypatch, device)
    compiled()
    assert next(device.seconds) == 1.0 and next(device.seconds) == 2.0  # 3 + 4 times


class Wrong(Double):
    """Nothing is right that is launched."""

    def launch(self, kernel: Any, programs: int, arguments: Sequence[int], stream: int) -> None:
        super().launch(kernel, programs, arguments, stream)
        memory_view(arguments[1], 4 * 32, kernel.parameters[1].dtype)[:] = 7.0


class Lost(Double):
    def launch(self, kernel: Any, programs: int, arguments: Sequence[int], stream: int) -> None:
        raise DriverError("launch failed")


def test_one_that_is_wrong_or_fails_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    use_double(monkeypatch, Wrong())
    with pytest.raises(
        SoundnessError, match=r"for h100 differs from the reference\nwhere: output 0.*found 7"
    ):
        compiled()
    use_double(monkeypatch, Lost())
    with pytest.raises(DriverError, match=r"launch failed, in .* with \d+ warps"):
        compiled()


def test_a_program_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    device = Double()
    use_double(monkeypatch, device)
    first = compiled(cache=True)
    launches = device.launches
    again = compiled(cache=True)
    assert first.stats["cached"] == 0 and again.stats["cached"] == 1 and device.launches == launches
    assert str(again.plan) == str(first.plan)
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    np.testing.assert_array_equal(first.run([x])[0], again.run([x])[0])
