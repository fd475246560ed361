"""What workers do before the sessions of several regions: candidates are built, then compared with the reference.

All workers do so at once, beside what the caller does meanwhile, since nothing is timed.  What fails is left to its
session, which does it again and reports.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.errors import LuminalError
from luminal.search.generate import Candidate
from luminal.search.profile import Trial
from luminal.search.workers import Crew, Worker, WorkerDiedError

BuildKey = tuple[str, str]
"""The text of a form and of a schedule."""
Place = tuple[str, str, int]
"""The text of a region, and the sizes and threads that it is run with."""
Job = tuple[Any, ...]
JOB_SECONDS = 120.0
"""How long a worker may compile a candidate, or prepare data: far more than it needs."""
SLOWER = 50.0
"""How many times longer than the model expects one run may take, beside the patience."""


def place_of(region: str, dims: Mapping[str, int], threads: int) -> Place:
    """Where candidates of a region, given as text, are compared."""
    return region, str(sorted(dims.items())), threads


@dataclass(frozen=True)
class _Waiting:
    """Candidates of a region that are to be compared when they are built: what each was told to be built as, whether
    it is a fold, and how long one run of any may take."""

    place: Place
    dims: dict[str, int]
    keys: list[tuple[BuildKey, bool]]
    run_seconds: float


class Preparation:
    """Builds and compares in the workers of a crew.  `measurer` and `verify` as for `WorkerProfiler`, `patience` too.

    `built`: what is built, until its session takes it; `compared`: what agrees with the reference, and where.
    """

    def __init__(self, crew: Crew, measurer: object, patience: float, verify: str) -> None:
        self.crew, self.measurer, self.patience, self.verify = crew, measurer, patience, verify
        self.built: dict[BuildKey, Any] = {}
        self.compared: dict[Place, set[BuildKey]] = {}
        self._builds: deque[tuple[BuildKey, Job]] = deque()
        self._regions: deque[_Waiting] = deque()
        self._running: dict[Worker, BuildKey | _Waiting] = {}

    def build_job(self, form: str, candidate: Candidate) -> tuple[BuildKey, Job]:
        """What a worker is told to build, and what that is known by."""
        schedule = str(candidate.schedule)
        return (form, schedule), ("build", self.measurer, form, schedule, candidate.cost)

    def has_built(self, trial: Trial) -> bool:
        """Whether a candidate is built, and its session has not taken it."""
        candidate, form = trial
        return bool(self.built) and self.build_job(region_text(form), candidate)[0] in self.built

    def add(self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int) -> None:
        """These will be wanted."""
        keys: list[tuple[BuildKey, bool]] = []
        longest = 0.0
        for candidate, form in trials:
            key, job = self.build_job(region_text(form), candidate)
            self._builds.append((key, job))
            keys.append((key, bool(candidate.form)))
            longest = max(longest, candidate.estimate.core_seconds)
        if not keys:
            return
        place = place_of(region_text(region), dims, threads)
        self._regions.append(_Waiting(place, dict(dims), keys, self.patience + SLOWER * longest))

    def advance(self, seconds: float) -> None:
        """Take in what workers have done, waiting so long for it, and hand out what waits. What another compilation has
        broken off is left out."""
        self._running = {worker: job for worker, job in self._running.items() if worker in self.crew.workers}
        finished = self.crew.wait(self._running, seconds)
        stuck = [worker for worker in self._running if worker not in finished and self._is_stuck(worker)]
        for worker in (*finished, *stuck):
            self._take(worker, self._running.pop(worker), 0.0 if worker in stuck else JOB_SECONDS)
        for worker in self.crew.idle() if self._builds or self._regions else ():
            if self._builds:
                key, job = self._builds.popleft()
                worker.send(job)
                self._running[worker] = key
            elif (waiting := self._next_region()) is not None:
                worker.send(self._comparison(waiting))
                self._running[worker] = waiting

    def finish(self) -> None:
        """Do all that waits, and wait for it."""
        end = time.monotonic() + JOB_SECONDS
        while (self._builds or self._running or self._regions) and time.monotonic() < end:
            self.crew.first()
            self.advance(0.2)
            self._regions = deque(each for each in self._regions if self._may_compare(each))
        self._builds.clear()
        self._regions.clear()
        self._running.clear()

    def _is_stuck(self, worker: Worker) -> bool:
        job = self._running[worker]
        return isinstance(job, _Waiting) and worker.is_stuck(job.run_seconds)

    def _take(self, worker: Worker, job: BuildKey | _Waiting, seconds: float) -> None:
        run_seconds = job.run_seconds if isinstance(job, _Waiting) else JOB_SECONDS
        try:
            result = worker.receive(run_seconds, seconds)
        except WorkerDiedError:
            self.crew.replace(worker)
            return
        except LuminalError:
            return
        if not isinstance(job, _Waiting):
            self.built[job] = result
        elif result is not None:
            agreeing = {key for (key, _), agrees in zip(job.keys, result, strict=True) if agrees}
            self.compared.setdefault(job.place, set()).update(agreeing)

    def _next_region(self) -> _Waiting | None:
        """A region of which all candidates are built."""
        for waiting in self._regions:
            if all(key in self.built for key, _ in waiting.keys):
                self._regions.remove(waiting)
                return waiting
        return None

    def _may_compare(self, waiting: _Waiting) -> bool:
        """Whether the candidates of a region are built, or still will be."""
        coming = {key for key, _ in self._builds} | {
            job for job in self._running.values() if not isinstance(job, _Waiting)
        }
        return all(key in self.built or key in coming for key, _ in waiting.keys)

    def _comparison(self, waiting: _Waiting) -> Job:
        region, _, threads = waiting.place
        kernels = [(*key, is_fold, self.built[key]) for key, is_fold in waiting.keys]
        return "compare", self.measurer, region, waiting.dims, threads, self.verify, kernels
