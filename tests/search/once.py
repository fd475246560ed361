"""Searches of the same graph, one after another, enumerate and place the same candidates: here each is done once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.search import candidates, cut_search, region_timer
from luminal.search.candidates import coarse_candidates, is_legal, legal_candidates, refusal
from luminal.search.forms import Form
from luminal.search.generate import Candidate
from luminal.search.machine import Machine
from luminal.search.record import Enumeration
from luminal.search.samples import Samples

Trial = tuple[Candidate, Region]


@contextmanager
def each_region_once() -> Iterator[None]:
    """While open, whoever asks the outer search's parts for the candidates of an equal region again, or whether one
    of them is legal, is told what was found before."""
    texts: dict[int, tuple[Region, str]] = {}
    firsts: dict[object, tuple[Trial | None, Enumeration]] = {}
    prices: dict[object, list[Candidate]] = {}
    refusals: dict[object, str | None] = {}

    def text(region: Region) -> str:
        if id(region) not in texts:
            texts[id(region)] = region, region_text(region)
        return texts[id(region)][1]

    def first_candidate(
        region: Region,
        machine: Machine,
        samples: Samples,
        forms: Sequence[Form] = (),
        seen: Enumeration | None = None,
    ) -> Iterator[Trial]:
        key = text(region), str(machine), str(samples), *(form.name for form in forms)
        if key not in firsts:
            fresh = Enumeration()
            firsts[key] = next(legal_candidates(region, machine, samples, forms, fresh), None), fresh
        first, found = firsts[key]
        if seen is not None:
            seen.candidates += found.candidates
            seen.refused += found.refused
            seen.tried += found.tried
        if first is not None:
            yield first
            raise AssertionError(
                "more was asked for than the first candidate, which is all that is known here"
            )

    def coarse(
        region: Region, machine: Machine, samples: Samples, forms: Sequence[Form] = ()
    ) -> list[Candidate]:
        key = text(region), str(machine), str(samples), *(form.name for form in forms)
        if key not in prices:
            prices[key] = coarse_candidates(region, machine, samples, forms)
        return prices[key]

    def known_refusal(region: Region, candidate: Candidate) -> str | None:
        key = text(region), str(candidate.schedule)
        if key not in refusals:
            refusals[key] = refusal(region, candidate)
        return refusals[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut_search, "coarse_candidates", coarse)
        patch.setattr(region_timer, "legal_candidates", first_candidate)
        for module in (candidates, region_timer):
            patch.setattr(module, "refusal", known_refusal)
        yield


def enumerated(region: Region, machine: Machine, samples: Samples, forms: Sequence[Form] = ()) -> list[Trial]:
    """All candidates in order, legal or not, for whoever wants a few of them: placing takes most of the time."""
    seen, named = Enumeration(), {"": region, **{form.name: form.region for form in forms}}
    next(legal_candidates(region, machine, samples, forms, seen=seen))
    return [(candidate, named[candidate.form]) for candidate in seen.candidates]


def legal(trials: Sequence[Trial]) -> Iterator[Trial]:
    return (trial for trial in trials if is_legal(trial[1], trial[0]))


def spread(trials: Sequence[Trial], count: int) -> list[Trial]:
    """So many legal ones from the first to the last."""
    found: list[Any] = [
        next(legal(trials[start:]), None) for start in range(0, len(trials), max(1, len(trials) // count))
    ]
    return [trial for trial in found if trial is not None][:count]
