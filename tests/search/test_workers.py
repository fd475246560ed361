"""Workers: candidates that crash, hang or are wrong cost one of them; they die with their parent; without any, the
program's own process times."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.errors import CandidateWarning, CompileError, OptionError, ProfilingWarning, SoundnessError
from luminal.options import profiles_in_workers
from luminal.plan.measure import HostMeasurer
from luminal.search import candidates, chooser, workers
from luminal.search.candidates import legal_candidates, refusal
from luminal.search.chooser import TimedChooser
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.profile import Budget, LocalProfiler, Outcome, Profiler, Trial, winner
from luminal.search.samples import Samples
from luminal.search.soundness import Reporter
from luminal.search.worker_profiler import WorkerProfiler
from luminal.search.workers import Crew, WorkerDiedError, WorkersUnavailableError
from tests.kernel import regions
from tests.search.failing import Failing, compiler

pytestmark = pytest.mark.xdist_group("workers")  # they share a crew
HOST = Machine(8, 16)
ROOT = Path(__file__).parents[2]
BUDGET = Budget(3, 60.0, 0.002)


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    made = Crew(2)
    yield made
    made.close()


def small() -> Region:
    return regions.softmax(16, 32)


def first_trials(region: Region, count: int = 6) -> list[Trial]:
    return list(itertools.islice(legal_candidates(region, HOST, Samples({})), count))


def profile(profiler: Profiler, region: Region, trials: list[Trial], threads: int = 1) -> list[Outcome]:
    outcomes = profiler.profile(region, trials, {}, threads, BUDGET)
    assert outcomes is not None
    return outcomes


def test_workers_time_what_the_program_would(crew: Crew) -> None:
    region, measurer = small(), HostMeasurer(compiler())
    trials = first_trials(region)
    outcomes = profile(WorkerProfiler(measurer, crew), region, trials, threads=2)
    assert [outcome.candidate for outcome in outcomes] == [candidate for candidate, _ in trials[:3]]
    assert all(outcome.seconds and outcome.times and not outcome.reason for outcome in outcomes)
    assert len(measurer.compiler.objects) == 3, "what workers have built is kept"
    best = winner(outcomes)
    assert best is not None
    source = measurer.compiler.source(region, best.candidate.schedule, best.candidate.cost)
    assert source.key in measurer.compiler.objects


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("fault", ["segfault", "abort", "hang"])
def test_a_candidate_that_fails_costs_one_worker(
    crew: Crew, fault: str, position: int, tmp_path: Path
) -> None:
    """When it is compared, at its first run."""
    region = small()
    trials = first_trials(region)
    bad = trials[position][0]
    crew.first()
    before = [worker.process.pid for worker in crew.workers]
    profiler = WorkerProfiler(Failing(fault, str(bad.schedule)), crew, Reporter(tmp_path), patience=0.5)
    reason = "hung" if fault == "hang" else "crashed"
    with pytest.warns(CandidateWarning, match=f"has {reason}") as told:
        outcomes = profile(profiler, region, trials)
    assert [outcome.reason for outcome in outcomes if outcome.candidate is bad] == [reason]
    assert [bool(outcome.seconds) for outcome in outcomes] == [not outcome.reason for outcome in outcomes]
    assert sum(1 for outcome in outcomes if outcome.seconds) >= 2, "the others are timed"
    (script,) = tmp_path.iterdir()
    assert str(script) in str(told[0].message) and str(bad.schedule) in script.read_text()
    after = [worker.process.pid for worker in crew.workers]
    assert len(set(before) - set(after)) == 1


@pytest.mark.parametrize("fault", ["segfault", "hang"])
def test_a_candidate_that_fails_while_it_is_timed_is_the_one_that_is_named(crew: Crew, fault: str) -> None:
    region = small()
    trials = first_trials(region)
    bad = trials[1][0]
    profiler = WorkerProfiler(Failing(fault, str(bad.schedule), first=5), crew, patience=0.5)
    with pytest.warns(CandidateWarning):
        outcomes = profile(profiler, region, trials)
    assert [bool(outcome.reason) for outcome in outcomes] == [False, True, False]
    assert outcomes[0].seconds and outcomes[2].seconds


def test_a_candidate_that_crashes_the_compiler_is_left_out(crew: Crew) -> None:
    region = small()
    trials = first_trials(region)
    profiler = WorkerProfiler(Failing("", str(trials[0][0].schedule), stage="build"), crew)
    with pytest.warns(CandidateWarning, match="has crashed"):
        outcomes = profile(profiler, region, trials)
    assert [outcome.reason for outcome in outcomes] == ["crashed", "", "", ""]


@pytest.mark.parametrize("make", ["workers", "local"])
def test_a_wrong_candidate_is_an_error_with_a_script_that_repeats_it(
    crew: Crew, make: str, tmp_path: Path
) -> None:
    region = small()
    trials = first_trials(region)
    measurer, reporter = Failing("wrong", str(trials[1][0].schedule)), Reporter(tmp_path, ("contract",))
    profiler = (
        WorkerProfiler(measurer, crew, reporter) if make == "workers" else LocalProfiler(measurer, reporter)
    )
    with pytest.raises(SoundnessError, match="differs from the reference") as caught:
        profile(profiler, region, trials)
    told = str(caught.value)
    for part in (
        str(trials[1][0].schedule),
        "expected",
        "found",
        "licences: contract",
        "reduce.sum",
        "as it is",
    ):
        assert part in told
    (script,) = tmp_path.iterdir()
    ran = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert ran.returncode == 0 and "agrees with the reference" in ran.stdout, ran.stderr
    assert profile(WorkerProfiler(HostMeasurer(compiler()), crew), region, trials), "the crew goes on"


def test_where_all_fail_the_region_is_an_error(crew: Crew) -> None:
    class Only:
        def prepare(self, region: Region, trials: Any, dims: Mapping[str, int], threads: int) -> None:
            pass

        def has_built(self, trial: Trial) -> bool:
            return False

        def profile(
            self, region: Region, trials: Any, dims: Mapping[str, int], threads: int, budget: Budget
        ) -> list[Outcome]:
            return [Outcome(candidate, None, "crashed") for candidate, _ in itertools.islice(trials, 2)]

    with pytest.raises(CompileError, match="2 candidates of a region have failed"):
        TimedChooser(HOST, Only()).choose(small(), "key", Samples({}))


def test_without_workers_the_program_itself_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    region, empty = small(), Crew(1)
    profiler = WorkerProfiler(HostMeasurer(compiler()), empty)
    with pytest.warns(ProfilingWarning, match="timed in this process"):
        outcomes = profile(profiler, region, first_trials(region))
    assert len(outcomes) == 3 and outcomes[0].seconds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profile(profiler, region, first_trials(region))


def test_workers_that_end_before_they_start_leave_the_timing_to_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "MODULE", "luminal.search.no_such_module")
    region, made = small(), Crew(1)
    made.start()
    made.workers[0].process.wait()
    profiler = WorkerProfiler(HostMeasurer(compiler()), made)
    profiler.prepare(region, first_trials(region), {}, 1)
    with pytest.warns(ProfilingWarning, match="no_such_module.*\n?.*timed in this process"):
        assert len(profile(profiler, region, first_trials(region))) == 3


def test_a_module_of_the_program_may_have_the_name_of_one_that_python_starts_with(tmp_path: Path) -> None:
    (tmp_path / "enum.py").write_text("raise SystemExit('not the one')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path), *sys.path])
        made = Crew(1)
        assert made.first().is_ready
    made.close()


WORKER = """
import sys
import a_package_of_the_program
from luminal.search.worker import main
main(*map(int, sys.argv[1:]))
"""


def test_packages_may_lie_where_only_the_program_looks(tmp_path: Path) -> None:
    """A worker finds them as soon as it imports anything."""
    (tmp_path / "a_package_of_the_program.py").touch()
    (tmp_path / "a_worker.py").write_text(WORKER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(tmp_path)])
        patch.setattr(workers, "MODULE", "a_worker")
        made = Crew(1)
        assert made.first().is_ready
    made.close()


@pytest.mark.parametrize("verify", ["full", "ordinary"])
def test_what_is_prepared_is_built_and_compared_once(crew: Crew, verify: str) -> None:
    regions_of = [small(), regions.softmax(8, 48)]
    profiler = WorkerProfiler(HostMeasurer(compiler()), crew, verify=verify)
    asked: list[str] = []
    send = workers.Worker.send

    def noting(worker: workers.Worker, job: tuple[Any, ...]) -> None:
        asked.append(job[0])
        send(worker, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers.Worker, "send", noting)
        for region in regions_of:
            profiler.prepare(region, first_trials(region, 3), {}, 2)
        for region in regions_of:
            found = profile(profiler, region, first_trials(region), threads=2)
            assert len(found) == 3 and all(outcome.seconds for outcome in found)
    assert asked.count("build") == 6 and asked.count("compare") == 2 and asked.count("open") == 2
    assert asked.count("check") <= asked.count("time") - 2, "but for what is suspicious, and timed again"


def test_what_was_built_ahead_is_not_placed_again_and_what_is_not_legal_is_refused(crew: Crew) -> None:
    region, placed = small(), list[str]()
    good, better = first_trials(region, 2)
    bad = replace(good[0], schedule=parse_schedule("out0: nowhere:*"))

    def refused(form: Region, candidate: Candidate) -> str | None:
        placed.append(str(candidate.schedule))
        return refusal(form, candidate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chooser, "every_candidate", lambda *given: [(bad, region), good, better])
        patch.setattr(candidates, "refusal", refused)
        search = TimedChooser(HOST, WorkerProfiler(HostMeasurer(compiler()), crew))
        search.prepare([(region, "key", Samples({}))])
        search.choose(region, "key", Samples({}))
    assert placed == [str(bad.schedule), str(better[0].schedule)]
    (found,) = search.record.regions.values()
    assert [outcome.candidate for outcome in found.outcomes] == [good[0], better[0]]
    assert [count for _, count in found.considered.refused] == [1] and found.considered.enumerated == 3


@pytest.mark.parametrize("least", [1, 2])
def test_the_least_are_timed_whatever_they_take(crew: Crew, least: int) -> None:
    """Where a schedule of an earlier source comes first, and the model's own after it."""
    region, budget = small(), Budget(3, 0.0, 0.002, least)
    profiler = WorkerProfiler(HostMeasurer(compiler()), crew)
    outcomes = profiler.profile(region, first_trials(region), {}, 1, budget)
    assert outcomes is not None and len(outcomes) == least


def test_a_region_without_candidates_asks_for_nothing(crew: Crew) -> None:
    """As where the database remembers its choice."""
    crew.first()
    WorkerProfiler(HostMeasurer(compiler()), crew).prepare(small(), [], {}, 1)
    assert not crew.busy()


def test_what_a_compilation_has_left_to_the_workers_is_in_nobodys_way(crew: Crew) -> None:
    region, other = small(), regions.softmax(8, 48)
    first, second = (WorkerProfiler(HostMeasurer(compiler()), crew) for _ in range(2))
    crew.first()
    first.prepare(other, first_trials(other, 3), {}, 1)
    assert crew.busy()
    assert len(profile(second, region, first_trials(region))) == 3
    assert len(profile(first, other, first_trials(other))) == 3, "it is built again"


@pytest.mark.parametrize("fault", ["segfault", "hang", "wrong"])
def test_what_fails_while_it_is_prepared_is_reported_by_its_session(
    crew: Crew, fault: str, tmp_path: Path
) -> None:
    region, other = small(), regions.softmax(8, 48)
    trials, others = first_trials(region), first_trials(other)
    bad = trials[1][0].schedule
    others = [trial for trial in others if trial[0].schedule != bad]
    measurer, reporter = Failing(fault, str(bad)), Reporter(tmp_path, ("contract",))
    profiler = WorkerProfiler(measurer, crew, reporter, patience=0.5)
    profiler.prepare(region, trials[:3], {}, 1)
    profiler.prepare(other, others[:3], {}, 1)
    if fault == "wrong":
        with pytest.raises(SoundnessError, match="differs from the reference"):
            profile(profiler, region, trials)
    else:
        with pytest.warns(CandidateWarning):
            outcomes = profile(profiler, region, trials)
        assert [bool(outcome.reason) for outcome in outcomes] == [False, True, False]
    assert all(outcome.seconds for outcome in profile(profiler, other, others))


def test_a_worker_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MODULE", "luminal.search.no_such_module")
    made = Crew(1)
    with pytest.raises(WorkersUnavailableError, match="no_such_module"):
        made.first()
    made.close()


def test_an_exception_of_a_job_is_the_callers(crew: Crew) -> None:
    worker = crew.first()
    with pytest.raises(AttributeError, match="no_such_job"):
        worker.call(("no_such_job",), 1.0, 10.0)
    assert not worker.is_busy


def test_a_job_without_end_is_ended() -> None:
    made = Crew(1)
    worker = made.first()
    with pytest.raises(WorkerDiedError, match="hung"):
        worker.call(("load", Slow(), 0, "", "", False, None), 1.0, 0.5)
    made.close()


class Slow:
    """Takes its time to arrive."""

    def __reduce__(self) -> Any:
        return time.sleep, (60,)


PARENT = """
import os, sys, time
from luminal.search.workers import Crew
crew = Crew(2)
crew.first()
print(*(worker.process.pid for worker in crew.workers), flush=True)
if os.fork() == 0:  # a child that lives on must not keep them alive
    os.close(1)
    time.sleep(20)
    os._exit(0)
time.sleep(60)
"""


def test_workers_die_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    numbers = [int(word) for word in parent.stdout.readline().split()]
    assert len(numbers) == 2 and all(is_alive(number) for number in numbers)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 10
    while any(is_alive(number) for number in numbers) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(is_alive(number) for number in numbers)


def is_alive(number: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_setting_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_PROFILE", "local")
    assert not profiles_in_workers()
    monkeypatch.setenv("LUMINAL_PROFILE", "elsewhere")
    with pytest.raises(OptionError, match="'workers', 'local'"):
        profiles_in_workers()


UNGUARDED = """
import luminal as lm, numpy as np
cx = lm.Graph()
x = cx.tensor((64, 64))
y = x.matmul(x).output()
cx.build_search_space(lm.CPURuntime)
rt = cx.search(lm.CPURuntime(), 4)
rt.set_data(x, np.eye(64, dtype=np.float32).reshape(-1))
rt.execute(cx.dyn_map)
print("sum", sum(rt.get_f32(y)))
"""


@pytest.mark.parametrize("setting", ["workers", "local"])
def test_a_program_without_a_guard_runs_once(setting: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(UNGUARDED)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LUMINAL_PROFILE": setting,
        "LUMINAL_CACHE_DIR": str(tmp_path),
    }
    ran = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "sum 64.0\n" and "Warning" not in ran.stderr
