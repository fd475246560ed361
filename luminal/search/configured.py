"""A chooser that does as a config says, and asks another one about regions that the config does not know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from luminal.dialects.kernel.terms import Region
from luminal.search.chooser import Choice, Wanted
from luminal.search.config import SearchConfig
from luminal.search.forms import Forms
from luminal.search.record import RegionRecord, SearchRecord
from luminal.search.samples import Samples


class Chooser(Protocol):
    """Decides a region's schedule, for samples of its symbols' sizes."""

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """These will be chosen for."""
        ...

    def choose(self, region: Region, key: str, samples: Samples) -> Choice: ...


class ConfiguredChooser:
    """`record` takes down what the config decided."""

    def __init__(self, chooser: Chooser, config: SearchConfig, forms: Forms, record: SearchRecord) -> None:
        self.chooser, self.config, self.forms, self.record = chooser, config, forms, record

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        self.chooser.prepare(each for each in wanted if each[1] not in self.config.regions)

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """The config's choice, or the other chooser's; ConfigError for a choice that is not legal."""
        choice = self.config.choice(region, key, self.forms)
        if choice is None:
            return self.chooser.choose(region, key, samples)
        self.record.add(RegionRecord(key, region, samples.expected, choice, "config"))
        return choice
