"""Forms of regions beside attention's: moments in one pass, sums and folds in parts by two kernels."""

from __future__ import annotations

import pytest

from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dim import dim
from luminal.search import forms, parts
from luminal.search.parts import region_in_parts
from luminal.search.samples import Samples
from tests.emit_triton.support import LICENCES, check, compare, numbers, run
from tests.kernel import regions
from tests.search.test_fold_parts import in_parts, inputs, query
from tests.search.test_forms import variance
from tests.search.test_gpu_schedules import PRICER

M = dim("m")


@pytest.mark.parametrize("width", [200, 128, 50])
def test_a_variance_in_one_pass(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "LONG", 1)
    b = regions.Builder()
    value = variance(b, b.read(0, {"i": width, "j": 1}), b.number(width))
    region = b.region({"i": M, "j": width}, [M * width], [(value, {"i": 1})])
    form = next(iter(forms.folding(region, frozenset(LICENCES)))).region
    schedule = "out0: i:*:parallel jo:* i:4:block ji:64:block"
    (kernel,) = check(form, schedule, [numbers(5 * width)], {"m": 5}, reference=region)
    assert kernel.source.count("for ") == 1


def test_a_sum_in_parts_is_two_kernels() -> None:
    b = regions.Builder()
    x = b.read(0, {"i": 1 << 17, "j": 1})
    region = b.region({"i": 2, "j": 1 << 17}, [1 << 18], [(b.total(x, "j"), {"i": 1})])
    form = region_in_parts(region, frozenset(LICENCES))
    assert form is not None
    part = form.terms().index(form.inner[0])
    kernels = check(
        form,
        f"out0: i:*:parallel jp:16:block; keep %{part} as i:* jp:* at kernel: "
        "i:*:parallel jp:*:parallel ji:* ji:1024:block",
        [numbers(1 << 18)],
        tolerance=1e-3,
        reference=region,
    )
    assert [kernel.grid.constant for kernel in kernels] == [2 * 16, 2]


def test_a_query_over_a_long_cache_is_first_in_parts_where_heads_are_few() -> None:
    """One kernel gives the state of each part, all of its terms at once, the other combines the states."""
    region = query(4096, heads=8)
    found = list(forms.folding(region, frozenset(LICENCES)))
    first = next(iter(PRICER.candidates(region, Samples({}), found)))
    assert first.form.startswith("in parts")
    grids = [kernel.grid.constant for kernel in first.kernels()]
    assert len(grids) == 2 and (grids[0] or 0) >= 8 * 16
    many = query(4096, heads=parts.FEW + 1)
    assert not any(form.name.startswith("in parts") for form in forms.folding(many, frozenset(LICENCES)))


@pytest.mark.parametrize("kind", ["plain", "hidden", "all hidden", "nan"])
def test_a_query_in_parts_gives_what_it_gave(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys, one, and a part that is cut off."""
    monkeypatch.setattr(parts, "SHORTEST", 1)
    monkeypatch.setattr(parts, "BLOCK", 16)
    region = query(dim("s", min=0))
    timed = PRICER.candidates(region, Samples({"s": 100}), in_parts(region))
    kernels = next(each.kernels() for each in timed if each.form and len(each.schedule.kept) == 1)
    for length in (0, 1, 100):
        data = inputs(region, length, kind)
        compare(run(region, kernels, data, {"s": length}), list(evaluate(region, data, {"s": length})), 1e-5)
