"""A long search of whole graphs: what is known of one is taken from the database, else the outer search finds it.

What it found of regions is kept beside the cuts, and given to whoever asks for their schedules afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from luminal.dialects.kernel.terms import Region
from luminal.passes.cuts import Cuts, Partition, parse_cuts
from luminal.passes.region_former import Formed
from luminal.search.chooser import Choice, TimedChooser, Wanted
from luminal.search.cut_search import CutSearch
from luminal.search.database import Database, FoundCuts
from luminal.search.outer import OuterSearch, State
from luminal.search.record import Considered, OuterRecord, RegionRecord
from luminal.search.region_timer import RegionTimer
from luminal.search.samples import Samples, bucket_of
from luminal.search.seeds import remembered


class LongSearch:
    """Finds cuts of graphs with the parts of a chooser, which decides what no cut does: copies, checks, updates.

    `candidates` of a region at most; `seed` of what is drawn.  The chooser's purse pays for all graphs together.
    """

    def __init__(self, chooser: TimedChooser, candidates: int, seed: int = 0) -> None:
        self.chooser, self.candidates, self.seed = chooser, candidates, seed
        self.purse, self.clock = chooser.purse, chooser.purse.clock
        self._found: dict[tuple[str, str], RegionRecord] = {}

    def cuts(self, digest: str, partition: Partition, samples: Samples, first: Cuts, graphs: int) -> Cuts:
        """The cuts of one of so many graphs that are still to be cut: as the model's, `first`, where nothing is left to
        search with."""
        known = self._known(digest, partition, samples)
        if known is not None:
            return known
        budget = self.purse.for_cuts / graphs
        if not samples.is_valid or budget <= 0:
            return first
        with self.purse.spending():
            return self._searched(digest, partition, samples, first, budget)

    def _searched(
        self, digest: str, partition: Partition, samples: Samples, first: Cuts, budget: float
    ) -> Cuts:
        started, record = self.clock(), self.chooser.record
        timer = RegionTimer(self.chooser, self.candidates, self.seed, self.clock)
        curve: list[tuple[float, float]] = []

        def progress(states: int, seconds: float) -> None:
            if not curve or seconds != curve[-1][1]:
                curve.append((self.clock() - started, seconds))
            record.goes_on(states, timer.timed, seconds, started + budget - self.clock())

        search = OuterSearch(partition, samples, first, timer, budget, self.clock, progress)
        found = search.run()
        for key in found.counts:
            region = search.region(key, found)
            if region.is_usable:
                self._found[key, str(region.samples)] = timer.record(region)
        best = search.seconds(found)
        record.outer[digest] = OuterRecord(
            len(search.states),
            timer.timed,
            search.modelled,
            best,
            self.clock() - started,
            budget,
            search.moves(found),
            tuple(curve),
            search.verdict,
        )
        self._keep(digest, samples, found, best)
        return found.priced.cuts

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """These will be chosen for."""
        self.chooser.prepare(each for each in wanted if (each[1], str(each[2])) not in self._found)

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """What was found of a region, else what the chooser says."""
        found = self._found.get((key, str(samples)))
        if found is None:
            return self.chooser.choose(region, key, samples)
        self.chooser.record.add(found)
        return found.choice

    # ---- the database

    def _bucket(self, samples: Samples) -> str:
        """What cuts are kept under beside their graph: sizes, and how many candidates of a region might be timed."""
        return f"{bucket_of(samples)} of {self.candidates}"

    def _keep(self, digest: str, samples: Samples, found: State, seconds: float) -> None:
        if self.chooser.database is not None:
            cuts = FoundCuts(str(found.priced.cuts), seconds, self.purse.total)
            self.chooser.database.store_cuts(digest, self._bucket(samples), self.chooser.machine, cuts)

    def _known(self, digest: str, partition: Partition, samples: Samples) -> Cuts | None:
        """What a search as long as this one found, with a winner of every region; None where anything is missing."""
        database, machine = self.chooser.database, self.chooser.machine
        known = None if database is None else database.find_cuts(digest, self._bucket(samples), machine)
        if database is None or known is None or known.budget < self.purse.total:
            return None
        try:
            cuts = parse_cuts(known.content)
        except ValueError:
            return None
        search = CutSearch(partition, machine, samples, self.chooser.forms)
        records: dict[tuple[str, str], RegionRecord] = {}
        for formed in search.formed_regions(cuts):
            sizes = samples.of(formed.symbols)
            record = self._recalled(database, formed, sizes)
            if record is None:
                return None
            records[formed.key, str(sizes)] = record
        self._found |= records
        self.chooser.record.outer[digest] = OuterRecord(
            0, 0, known.seconds, known.seconds, 0.0, self.purse.total
        )
        return cuts

    def _recalled(self, database: Database, formed: Formed, samples: Samples) -> RegionRecord | None:
        region, key, machine = formed.region, formed.key, self.chooser.machine
        found = remembered(database, region, key, samples, machine, self.chooser.forms)
        if found is None:
            return None
        known, candidate = found
        text = database.find_considered(key, bucket_of(samples), machine)
        considered = Considered() if text is None else Considered.parse(text)
        choice = Choice(candidate.schedule, known.cost, known.form)
        return RegionRecord(
            formed.key, formed.region, samples.expected, choice, "database", considered=considered
        )
