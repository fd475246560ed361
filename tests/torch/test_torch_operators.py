"""A sample of torch's operator database; `python tests/torch/operator_database.py` runs all of it."""

from __future__ import annotations

from collections import Counter

import pytest
from operator_database import DTYPES, Result, name_of, run_entry, sensible_entries
from operator_exclusions import EXCLUDED, exclusion_reason
from torch.testing._internal.common_methods_invocations import op_db
from torch_harness import BACKEND

EVERY = 9
ENTRIES = {name_of(entry): entry for entry in sensible_entries()}
SAMPLE = list(ENTRIES)[::EVERY]
EXACT = ["add", "mul", "div.floor_rounding", "div.trunc_rounding", "remainder", "pow", "sum", "cumsum", "prod", "amax",
         "sort", "index_put", "scatter_add", "clamp", "where", "max.reduction_with_dim"]  # fmt: skip


def test_the_list_of_entries() -> None:
    names = [name_of(entry) for entry in op_db]
    assert len(ENTRIES) == 515
    for reason, patterns in EXCLUDED.items():
        for pattern in patterns:
            found = [
                n for n in names if n == pattern or (pattern.endswith("*") and n.startswith(pattern[:-1]))
            ]
            assert found, f"{pattern} ({reason}) is no entry"
    assert exclusion_reason("fft.fft2") == "Fourier transforms"
    assert exclusion_reason("add") is None


@pytest.mark.parametrize("name", SAMPLE)
def test_an_entry_gives_eager_values(name: str) -> None:
    result = run_entry(ENTRIES[name], BACKEND, samples=1)
    assert result.passed, str(result)


@pytest.mark.parametrize("name", EXACT)
def test_an_entry_over_narrow_dtypes(name: str) -> None:
    dtypes = [DTYPES[kind] for kind in ("i64", "i32", "i8", "u8", "bool", "bf16")]
    result = run_entry(ENTRIES[name], BACKEND, dtypes, samples=1)
    assert result.passed, str(result)
    assert not result.fallbacks


def test_a_result_says_what_happened() -> None:
    assert Result("a").whole
    assert str(Result("a", wrong="1, expected 2")).startswith("WRONG")
    assert str(Result("a", error="broken")).startswith("error")
    fallen = Result("a", fallbacks=Counter({"aten.svd": 1}))
    assert fallen.passed and not fallen.whole and "aten.svd" in str(fallen)
