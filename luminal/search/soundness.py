"""Reports of candidates that are wrong, crash or hang: what shows it, the rules to blame, and a script that repeats it.

Such a candidate is a bug of the compiler.  One that is wrong is raised as such, never skipped.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.errors import CandidateWarning, SoundnessError
from luminal.search.generate import Candidate
from luminal.search.trial import Wrong

_SCRIPT = '''"""{title}

Runs one candidate of a region in this process, on made-up data, and compares it with the reference: python {name}
"""

from luminal.plan.reproduce import reproduce

REGION = """\\
{region}"""
FORM = {form}
SCHEDULE = """{schedule}"""

if __name__ == "__main__":
    reproduce(REGION, FORM, SCHEDULE, cost={cost}, licences={licences}, dims={dims}, threads={threads})
'''


@dataclass(frozen=True, slots=True)
class Reporter:
    """Writes reports of one compilation into a folder, None for none; `licences` are those that its kernels use."""

    folder: Path | None = None
    licences: tuple[str, ...] = ()

    @staticmethod
    def of(folder: Path | None, licences: Iterable[str]) -> Reporter:
        return Reporter(folder, tuple(sorted(licences)))

    def soundness(
        self,
        region: Region,
        candidate: Candidate,
        form: Region,
        wrong: Wrong,
        dims: Mapping[str, int],
        threads: int,
    ) -> SoundnessError:
        """The error of a candidate that differs from the reference."""
        script = self._script("differs from the reference", region, candidate, form, dims, threads)
        lines = [
            "a generated kernel differs from the reference",
            f"where: {wrong}",
            f"schedule: {candidate.schedule}",
            f"licences: {', '.join(self.licences) or 'none'}",
            f"form: {candidate.form or 'as it is'}",
        ]
        if candidate.form:
            from luminal.search.blame import blame

            lines.append(f"rules: {blame(region, candidate.form, frozenset(self.licences))}")
        if script is not None:
            lines.append(f"reproduce: python {script}")
        return SoundnessError("\n".join([*lines, f"region:\n{region_text(region)}"]))

    def failure(
        self,
        reason: str,
        region: Region,
        candidate: Candidate,
        form: Region,
        dims: Mapping[str, int],
        threads: int,
        said: str,
    ) -> None:
        """Warns of a candidate that crashed or hung; `said`: what its process wrote."""
        script = self._script(f"has {reason}", region, candidate, form, dims, threads)
        again = f"; python {script} does it again" if script is not None else ""
        last = f"; it said: {said}" if said else ""
        warnings.warn(
            CandidateWarning(
                f"a generated kernel has {reason} and is left out: a bug of the compiler{again}\n"
                f"schedule: {candidate.schedule}{last}"
            ),
            stacklevel=2,
        )

    def _script(
        self,
        what: str,
        region: Region,
        candidate: Candidate,
        form: Region,
        dims: Mapping[str, int],
        threads: int,
    ) -> Path | None:
        """Writes the script; None where there is no folder, or none that can be written to."""
        if self.folder is None:
            return None
        text = region_text(region)
        identity = hashlib.sha256(f"{text}{candidate.form}{candidate.schedule}".encode()).hexdigest()[:12]
        path = self.folder / f"{identity}.py"
        script = _SCRIPT.format(
            title=f"A generated kernel that {what}.",
            name=path.name,
            region=text,
            form=f'"""\\\n{region_text(form)}"""' if candidate.form else '""',
            schedule=candidate.schedule,
            cost=candidate.cost,
            licences=self.licences,
            dims=dict(dims),
            threads=threads,
        )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(script)
        except OSError:
            return None
        return path
