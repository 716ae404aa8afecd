"""What a soak run has found, as lines, as JSON, and as sections of two pages."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from soak.drift import Drift, worth_showing

MIN_HOURS = 0.25
"""A shorter run shows that everything works together; caches that fill look like growth in it."""


@dataclass
class Report:
    at: str
    hours: float
    seed: int
    commit: str
    versions: str
    machine: str
    minutes: float = 0.0
    """How long it has run."""
    counts: dict[str, int] = field(default_factory=dict)
    drift: list[Drift] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    ended_early: str = ""

    FILE: ClassVar[Path] = Path(__file__).with_name("results.json")

    @property
    def growing(self) -> list[Drift]:
        return [one for one in self.drift if one.verdict == "growing"]

    @property
    def problems(self) -> list[str]:
        return [*self.broken, *([f"ended early in {self.ended_early}"] if self.ended_early else [])]

    @property
    def passed(self) -> bool:
        return not self.problems and (self.hours < MIN_HOURS or not self.growing)

    @property
    def shown(self) -> list[Drift]:
        return [one for one in self.drift if worth_showing(one)]

    @classmethod
    def read(cls, file: Path = FILE) -> "Report | None":
        if not file.exists():
            return None
        kept = json.loads(file.read_text())
        return cls(**kept | {"drift": [Drift(**one) for one in kept["drift"]]})

    def write(self, file: Path = FILE) -> None:
        file.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"drift": [asdict(one) for one in self.shown]}

    def lines(self) -> list[str]:
        counted = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        verdict = (
            f"{len(self.problems)} rules broken" if self.problems else "nothing was lost or happened twice"
        )
        grown = f"{len(self.growing)} figures grow" if self.growing else "no figure grows"
        return [
            *(str(one) for one in self.shown),
            *self.problems[:50],
            f"{self.minutes:.0f} minutes, seed {self.seed}: {counted}",
            f"{verdict}; {grown}",
        ]

    def summary(self) -> str:
        """What happened, in one paragraph."""
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        broken = f"Broken rules: {'; '.join(self.problems)}."
        verdict = broken if self.problems else "Nothing was lost and nothing happened twice."
        grown = f"Figures that grow: {', '.join(one.name for one in self.growing) or 'none'}."
        rising = [one.name for one in self.drift if one.verdict.startswith(("larger", "rising"))]
        rose = f" Larger at the end, but below the bound for growth: {', '.join(rising)}." if rising else ""
        command = f"HOLDFAST_SEED={self.seed} make soak HOURS={self.hours:g}"
        about = f"Last run: {self.at}, {self.minutes:.0f} minutes, `{command}`, commit `{self.commit}`."
        return f"{about} {self.versions}. {self.machine}.\n\n{counted}. {verdict} {grown}{rose}"

    def section(self) -> str:
        """The same, with a row for each figure."""
        rows = [
            f"| {one.name}{one.unit and f' [{one.unit}]'} | {_cells(one.quarters)} | {one.verdict} |"
            for one in self.shown
        ]
        head = [
            "| figure | first quarter | second | third | last | verdict |",
            "|---|---:|---:|---:|---:|---|",
        ]
        return "\n".join([self.summary(), "", *head, *rows])


def _cells(values: list[float]) -> str:
    return " | ".join(f"{value:,.1f}" for value in values)


def section() -> str:
    report = Report.read()
    return report.section() if report else "There was no run yet."


def summary() -> str:
    report = Report.read()
    return report.summary() if report else "There was no run yet."
