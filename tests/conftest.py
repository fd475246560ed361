"""For all tests: offline, one thread a process, no silent fall-back of Dynamo, examples that reproduce."""

from __future__ import annotations

import os
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
import torch._dynamo
import torch._dynamo.guards
from hypothesis import HealthCheck, settings

from luminal.plan import choosers
from luminal.search import purse
from luminal.search.profile import Budget

# The same examples at each run (`--hypothesis-seed` and tests/property draw others); a failing one prints the line that
# reproduces it. Compilation is slow: no deadline.
settings.register_profile(
    "luminal",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("luminal")
CACHE_PREFIX = "luminal-tests-"


def pytest_configure(config: pytest.Config) -> None:
    del config
    # Past its limit of recompilations Dynamo would run eager in silence: eager compared with eager.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    # Each compilation would empty the caches and time its guards once, for a figure that nobody looks at here.
    torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
    # The first candidate of each kernel, untimed: the same program at each run. Tests of the search have a
    # budget of their own.
    choosers.BUDGETS = {**choosers.BUDGETS, "default": Budget(candidates=1)}
    # No long search of whole graphs, but where a test states a budget for it.
    purse.LONG_SECONDS = dict.fromkeys(purse.LONG_SECONDS, 0.0)
    # Two test processes on two cores: more threads would only fight. Tests about threads set their own.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)
    # Starting workers takes longer than timing nothing in them; tests of workers start their own.
    os.environ.setdefault("LUMINAL_PROFILE", "local")
    # A cache of their own, cold at the start; the processes of one run share it, for they inherit the environment.
    if "LUMINAL_CACHE_DIR" not in os.environ:
        os.environ["LUMINAL_CACHE_DIR"] = tempfile.mkdtemp(prefix=CACHE_PREFIX)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Slow ones first, so that no process is left with one of them while the other has nothing to do.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_unconfigure(config: pytest.Config) -> None:
    del config
    folder = os.environ.get("LUMINAL_CACHE_DIR", "")
    if CACHE_PREFIX in folder and not os.environ.get("PYTEST_XDIST_WORKER"):
        shutil.rmtree(folder, ignore_errors=True)
