"""Forms of regions beside attention's: moments in one pass, sums in parts by two kernels."""

from __future__ import annotations

import pytest

from luminal.dim import dim
from luminal.search import forms
from luminal.search.parts import region_in_parts
from tests.emit_triton.support import LICENCES, check, numbers
from tests.kernel import regions
from tests.search.test_forms import variance

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
