"""Figures as they come in: one value per contender, measure, name and round."""

import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Record:
    round: int
    contender: str
    measure: str
    values: dict[str, float]
    failure: str | None = None


@dataclass
class Results:
    records: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.records.append(record)

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(record.contender for record in self.records))

    @property
    def failures(self) -> list[Record]:
        return [record for record in self.records if record.failure]

    def by_round(self, contender: str, figure: str) -> dict[int, float]:
        """`figure` is a measure and a name in it: drain_1.per_second."""
        measure, _, name = figure.partition(".")
        return {
            record.round: record.values[name]
            for record in self.records
            if record.contender == contender and record.measure == measure and name in record.values
        }

    def median(self, contender: str, figure: str) -> float | None:
        values = self.by_round(contender, figure).values()
        return statistics.median(values) if values else None
