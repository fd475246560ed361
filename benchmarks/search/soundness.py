"""Candidates drawn by chance from all that are legal, each compiled and compared with the reference.

Every form of a region takes part, and every schedule that the generators enumerate, the plain ones and variants too;
each kernel runs on ordinary and on hostile data (luminal/search/trial.py).  That a wrong kernel or rule *is* caught is
a test's affair: tests/search/test_soundness.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from benchmarks.search.regions import Found, of_program, real_regions
from luminal.bench.case import BenchmarkError
from luminal.bench.report import LeftOutError, Report, Settings
from luminal.dialects.kernel.terms import Region
from luminal.emit_cpu.cache import cache_directory
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import HostMeasurer, host_machine
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.candidates import generator_of, is_legal, legal_candidates
from luminal.search.forms import Form, Forms
from luminal.search.generate import Candidate
from luminal.search.record import Enumeration
from luminal.search.shapes import Shapes
from luminal.search.soundness import Reporter
from luminal.search.trial import Trials

OF_PROGRAMS = 0.6
"""The part of all candidates that random programs have, whose kernels are quick to compile."""
OF_ONE_PROGRAM = 20
MOST_REPORTS = 5
"""Texts of soundness reports that are kept."""


@dataclass
class Tally:
    """Candidates that were compared, and those of forms among them; how many were enumerated; regions, and those that
    cannot be run on made-up data; soundness reports."""

    compared: int = 0
    of_forms: int = 0
    drawn_from: int = 0
    regions: int = 0
    not_run: int = 0
    reports: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        self.compared += other.compared
        self.of_forms += other.of_forms
        self.drawn_from += other.drawn_from
        self.regions += other.regions
        self.not_run += other.not_run
        self.reports += other.reports


def measure(report: Report, settings: Settings) -> None:
    wanted = min(settings.samples, 40) if settings.quick else settings.samples
    regions, missing = real_regions(settings.quick)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        sampling = _Sampling(pool, report, wanted)
        try:
            sampling.of_regions(regions, int(wanted * (1 - OF_PROGRAMS)))
            sampling.of_programs()
        except LeftOutError as error:
            missing["programs"] = str(error)
        except BrokenProcessPool:
            raise BenchmarkError(f"a candidate has ended its process, with --seed {settings.seed}") from None
    total = sampling.total
    report.figure(
        "candidates compared with the reference",
        total.compared,
        "candidates",
        at_least=wanted,
        of_forms=total.of_forms,
        drawn_from=total.drawn_from,
        regions=total.regions,
        regions_that_cannot_run=total.not_run,
        by_source=sampling.by_source,
        missing=missing,
        seed=settings.seed,
    )
    reports = total.reports
    report.figure("soundness reports", len(reports), "reports", at_most=0, texts=reports[:MOST_REPORTS])


@dataclass
class _Sampling:
    """Candidates of regions and programs, compared in all processes of a pool until there are as many as wanted."""

    pool: ProcessPoolExecutor
    report: Report
    wanted: int
    total: Tally = field(default_factory=Tally)
    by_source: dict[str, int] = field(default_factory=dict[str, int])

    def of_regions(self, regions: Sequence[Found], count: int) -> None:
        """So many candidates in all: regions have equal parts, and what small ones lack goes to others."""
        settings, left = self.report.settings, count
        sizes = sorted(((len(_candidates(found, found.region)), n) for n, found in enumerate(regions)))
        jobs: list[Future[tuple[str, Tally]]] = []
        for position, (size, number) in enumerate(sizes):
            part = min(size, left // (len(sizes) - position))
            left -= part
            jobs.append(self.pool.submit(sample, regions[number], part, settings.seed, settings.threads))
        self._await(jobs)

    def of_programs(self) -> None:
        """What is left, of random programs: some of each."""
        settings, number = self.report.settings, self.report.settings.seed
        while (left := self.wanted - self.total.compared) > 0:
            count = -(-left // OF_ONE_PROGRAM)
            jobs = [
                self.pool.submit(sample_program, number + n, min(left, OF_ONE_PROGRAM), settings.threads)
                for n in range(count)
            ]
            number += count
            self._await(jobs)

    def _await(self, jobs: Sequence[Future[tuple[str, Tally]]]) -> None:
        for job in as_completed(jobs):
            source, tally = job.result()
            self.total.add(tally)
            self.by_source[source] = self.by_source.get(source, 0) + tally.compared
            self.report.progress(self.total.compared, self.wanted)


def sample_program(number: int, count: int, threads: int) -> tuple[str, Tally]:
    """Up to so many candidates of the regions of one random program; its number is the seed."""
    tally = Tally()
    regions = of_program(number)
    for found in regions:
        _, part = sample(found, -(-count // len(regions)), number, threads)
        tally.add(part)
    return "random programs", tally


def sample(found: Found, count: int, seed: int, threads: int) -> tuple[str, Tally]:
    """Up to so many different legal candidates of one region, drawn by seed; a report names what repeats it."""
    region, tally = found.region, Tally(regions=1)
    dims = Shapes(region, found.samples.expected).values
    measurer = HostMeasurer(KernelCompiler(Target.host(), found.licences, use_cache=False))
    trials = Trials(region, dims, threads, measurer.place)
    if not trials.is_valid:
        tally.not_run = 1
        return found.source, tally
    reporter = Reporter.of(cache_directory() / "reports", found.licences)
    every = _candidates(found, region)
    tally.drawn_from = len(every)
    random.Random(f"{seed} {found.key}").shuffle(every)
    for candidate, form in every:
        if tally.compared == count:
            break
        if not is_legal(form, candidate):
            continue
        kernel = measurer.compile(form, candidate.schedule, candidate.cost)
        wrong = trials.check(0, form, candidate.schedule, bool(candidate.form), kernel)
        tally.compared += 1
        tally.of_forms += bool(candidate.form)
        if wrong is not None:
            error = reporter.soundness(region, candidate, form, wrong, dims, threads)
            tally.reports.append(f"{found.source}, --seed {seed}\n{error}")
    return found.source, tally


def _candidates(found: Found, region: Region) -> list[tuple[Candidate, Region]]:
    """All schedules of a region and of its forms, and their variants that the search would time, legal or not."""
    machine = host_machine(2)
    forms = (Form("", region), *Forms(found.licences).of(region, found.key))
    made: list[tuple[Candidate, Region]] = []
    for form in forms:
        generator = generator_of(form, machine, found.samples)
        schedules = generator.suggested() if form.name else generator.candidates()
        made += [(replace(candidate, form=form.name), form.region) for candidate in schedules]
    seen, named = Enumeration(), {form.name: form.region for form in forms}
    next(legal_candidates(region, machine, found.samples, forms[1:], seen=seen), None)
    made += [(candidate, named[candidate.form]) for candidate in seen.candidates]
    return list({(each.form, str(each.schedule)): (each, form) for each, form in made}.values())
