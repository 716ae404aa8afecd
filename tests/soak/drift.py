"""Figures that are measured all the time, and whether they grow: the medians of the quarters of the time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from support import engine
from support.engine import Connection
from support.processes import descendants

MEGABYTE = 1_000_000
FACTOR = 1.15
NOISE = {"MB": 0.3, "ms": 2.0, "s": 1.0, "rows": 200.0, "": 2.0}
"""A figure has changed if its last quarter differs from its first by this factor and this much."""
SLACK = {"MB": 3.0, "ms": 25.0, "s": 2.0, "rows": 5000.0, "": 5.0}
"""One that has become larger by this much fails the run. By less, it is called larger, and does not."""
KEPT = {"comms": "the history of messages is kept for ever"}
"""Tables that grow by design, by the beginning of their name."""
LOAD = "load average"
"""Of the whole machine: shown, and not judged."""
WARM_UP = 0.1
"""The share of the time that counts for neither quarter: caches fill, and the first tasks become old."""

_TABLES = """
    select n.nspname || '.' || c.relname as name,
      pg_table_size(c.oid) as bytes, pg_indexes_size(c.oid) as indexes
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('queues', 'comms') and c.relkind = 'r'"""
_DEAD = "select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables where schemaname in ('queues', 'comms')"
_SESSIONS = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
_OLDEST = """
    select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()"""

Samples = dict[str, list[tuple[float, float]]]
"""By name of the figure: when, and how much."""


@dataclass(frozen=True)
class Drift:
    """One figure over the whole run."""

    name: str
    unit: str
    quarters: list[float]
    verdict: str

    def __str__(self) -> str:
        told = " → ".join(f"{value:,.1f}" for value in self.quarters)
        return f"{self.name}: {told} {self.unit}, {self.verdict}"


def database_figures(conn: Connection) -> dict[str, float]:
    tables = engine.rows(conn, _TABLES)
    figures = {f"table {row['name']} [MB]": row["bytes"] / MEGABYTE for row in tables}
    figures |= {f"indexes of {row['name']} [MB]": row["indexes"] / MEGABYTE for row in tables}
    figures["all tables [MB]"] = sum(row["bytes"] for row in tables) / MEGABYTE
    figures["all indexes [MB]"] = sum(row["indexes"] for row in tables) / MEGABYTE
    figures["dead tuples [rows]"] = float(engine.value(conn, _DEAD))
    figures["connections []"] = float(engine.value(conn, _SESSIONS))
    figures["oldest transaction [s]"] = float(engine.value(conn, _OLDEST))
    figures["tasks kept [rows]"] = float(engine.value(conn, "select count(*) from queues.task"))
    figures["lanes []"] = float(engine.value(conn, "select count(*) from queues.lane"))
    return figures


def process_figures(name: str, pid: int) -> dict[str, float]:
    """Of a process and all that it has started. Nothing if it has just ended."""
    try:
        every = [pid, *descendants(pid)]
        memory = sum(_anonymous(one) for one in every)
        files = sum(len(list(Path(f"/proc/{one}/fd").iterdir())) for one in every)
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {f"memory of {name} [MB]": memory / MEGABYTE, f"open files of {name} []": float(files)}


def _anonymous(pid: int) -> float:
    """Without pages of files and shared memory, which the system may drop or count twice."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return float(line.split()[1]) * 1024
    return 0.0


def latencies(measured: Sequence[tuple[float, float]]) -> Iterable[tuple[str, float]]:
    """Percentiles of what was measured in one period, in milliseconds."""
    values = [value for _, value in measured]
    if len(values) < 2:
        return []
    cuts = quantiles(values, n=100, method="inclusive")
    return [(f"latency {share} % [ms]", cuts[share - 1]) for share in (50, 95, 99)]


def compare(samples: Samples, began: float, ended: float) -> list[Drift]:
    """The median of each figure in each quarter, after the time to warm up."""
    start = began + WARM_UP * (ended - began)
    quarter = (ended - start) / 4
    found = []
    for label, taken in samples.items():
        parts: list[list[float]] = [[], [], [], []]
        for at, value in taken:
            if start <= at <= ended:
                parts[min(3, int((at - start) / quarter))].append(value)
        if all(parts):
            name, _, unit = label.removesuffix("]").rpartition(" [")
            found.append(_judge(name, unit, [round(median(part), 2) for part in parts]))
    return found


def _judge(name: str, unit: str, quarters: list[float]) -> Drift:
    first, last = quarters[0], quarters[-1]
    larger = last > first * FACTOR and last > first + NOISE[unit]
    rises = larger and all(after > before for before, after in pairwise(quarters))
    reasons = [reason for beginning, reason in KEPT.items() if f" {beginning}." in name]
    if name == LOAD:
        verdict = "not judged"
    elif larger and last > first + SLACK[unit]:
        verdict = f"growing: {reasons[0]}" if reasons else "growing"
    elif larger:
        verdict = "rising in each quarter" if rises else "larger"
    else:
        verdict = "flat"
    return Drift(name, unit, quarters, verdict)


def worth_showing(drift: Drift) -> bool:
    """Not every small table: those that grow, and those that are large."""
    single = drift.name.startswith(("table ", "indexes of "))
    return not single or drift.verdict != "flat" or drift.quarters[-1] >= 1
