"""One graph at every level: the reference runtime and the native one agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))


def runtimes() -> list[tuple[str, Any]]:
    levels = [(level, lm.ReferenceRuntime(level)) for level in ("hlo", "primitive", "kernel")]
    return [*levels, ("native", lm.CPURuntime())]


@pytest.mark.parametrize("size", [0, 1, 5, 18])
def test_levels_agree(size: int) -> None:
    draw = np.random.default_rng(size)
    x = (draw.integers(-8, 9, (size, 6)) / 4).astype(np.float32)
    w = (draw.integers(-8, 9, (6, 3)) / 4).astype(np.float32)
    results: dict[str, list[np.ndarray[Any, Any]]] = {}
    for name, runtime in runtimes():
        cx = lm.Graph()
        s = lm.dim("s", min=0, max=64)
        a, b = cx.tensor((s, 6)), cx.tensor((6, 3))
        outputs = [a.matmul(b).output(), a.sum(1).output(), a.permute((1, 0)).output(), (a < 0.5).output()]
        cx.build_search_space(type(runtime))
        run = cx.search(runtime, 2)
        run.set_data(a, x)
        run.set_data(b, w)
        run.execute({"s": size})
        results[name] = [run.get_numpy(output) for output in outputs]
    for name, values in results.items():
        for value, expected in zip(values, [x @ w, x.sum(1), x.T, x < 0.5], strict=True):
            assert value.dtype == expected.dtype, name
            assert np.array_equal(value, expected), name
