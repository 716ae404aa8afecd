"""`make bench-workflows`: durable steps beside DBOS and absurd. Exits with 1 if a target is missed."""

import argparse
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks import workflow_measures as measures
from benchmarks.peers import environments
from benchmarks.peers.catalog import EVERYONE, HOLDFAST, Peer
from benchmarks.peers.cluster import Cluster
from benchmarks.peers.contender import Contender, Failure
from benchmarks.peers.page import STEPS_BEGIN as BEGIN
from benchmarks.peers.page import STEPS_END as END
from benchmarks.peers.targets import Bar
from holdfast.logs import configure

SETTINGS: dict[str, dict[str, float]] = {
    "holdfast": {"concurrency": measures.CONCURRENT},
    "absurd": {"concurrency": measures.CONCURRENT, "poll": 0.02},
    "dbos": {"concurrency": measures.CONCURRENT, "polling": 0.02},
}
RUNS = {"holdfast": 4000, "absurd": 400, "dbos": 200}
"""At scale 1: some seconds of work, and at least as many as run at the same time."""
ALONE = {"holdfast": 500, "absurd": 500, "dbos": 200}
SUSPENDED = 100_000
CHILDREN = 10_000
SIGNALS = 500


@dataclass
class Figures:
    """One value per round and figure; the median counts."""

    values: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)
        print(f"  {name:<44} {value:>12,.3f}", flush=True)

    def take(self, name: str, measure: Callable[[], float]) -> None:
        try:
            self.add(name, measure())
        except Failure as failure:
            self.failures.append(f"{name}: {failure}")
            print(f"  {name:<44} failed: {failure}", flush=True)

    def median(self, name: str) -> float | None:
        values = self.values.get(name)
        return statistics.median(values) if values else None

    def ratio(self, one: str, other: str) -> float | None:
        """The median of the ratios of each round."""
        pairs = list(zip(self.values.get(one, ()), self.values.get(other, ()), strict=False))
        return statistics.median(a / b for a, b in pairs) if pairs else None


def targets(figures: Figures, scale: float) -> dict[str, Bar]:
    """What was measured against what it must be."""
    suspended, children = (f"{round(count * scale):,}" for count in (SUSPENDED, CHILDREN))
    rate = "holdfast, steps/s"
    return {
        "one run alone, p50 of a step": Bar(
            "≤ 1.3 x a commit", figures.ratio("holdfast, ms per step", "ms per commit"), 1.3, at_least=False
        ),
        "200 concurrent runs of 10 steps": Bar("≥ 8,000 steps/s", figures.median(rate), 8000),
        "the same, against DBOS": Bar("≥ 20 x", figures.ratio(rate, "dbos, steps/s"), 20),
        "the same, against absurd": Bar("≥ 5 x", figures.ratio(rate, "absurd, steps/s"), 5),
        "WAL per step, result of 60 bytes": Bar(
            "≤ 400 B", figures.median("holdfast, WAL bytes per step"), 400, at_least=False
        ),
        f"claims beside {suspended} suspended runs": Bar(
            "≤ 1.05 x", figures.median("claims beside suspended runs"), 1.05, at_least=False
        ),
        f"memory of a worker with {suspended} suspended runs": Bar(
            "≤ 1.05 x", figures.ratio("worker MB, suspended runs", "worker MB, none"), 1.05, at_least=False
        ),
        "signal → the run goes on, p99": Bar(
            "≤ 100 ms", figures.median("ms from signal to resume, p99"), 100, at_least=False
        ),
        f"join over {children} children": Bar(
            "≤ 1.2 x the children", figures.ratio("s, joined", "s, children"), 1.2, at_least=False
        ),
    }


def measure_round(figures: Figures, contenders: list[Contender], scale: float) -> None:
    ours = next(each for each in contenders if each.name == HOLDFAST.name)
    _paired(figures, ours, max(60, round(ALONE[ours.name] * scale)))
    for each in contenders:
        if each is not ours:
            figures.take(f"{each.name}, ms per step", partial(_alone, each, scale))
    for each in contenders:
        figures.take(f"{each.name}, steps/s", partial(_concurrent, each, scale))
    figures.take("holdfast, WAL bytes per step", partial(_wal_per_step, ours, scale))
    suspended = round(SUSPENDED * scale)
    figures.take("claims beside suspended runs", partial(measures.claims_beside_suspended, ours, suspended))
    figures.take("worker MB, none", partial(measures.resident_alone, ours))
    _wake(figures, ours, suspended, max(100, round(SIGNALS * scale)))
    children = round(CHILDREN * scale)
    figures.take("s, children", partial(measures.children_alone, ours, children))
    figures.take("s, joined", partial(measures.children_joined, ours, children))


def _paired(figures: Figures, contender: Contender, steps: int) -> None:
    """A step and a commit in turns: on a busy machine, two separate measurements meet different loads."""
    try:
        step, commit = measures.step_and_commit(contender, steps)
    except Failure as failure:
        figures.failures.append(f"ms per step: {failure}")
        return
    figures.add("holdfast, ms per step", step)
    figures.add("ms per commit", commit)


def _alone(contender: Contender, scale: float) -> float:
    return measures.run_steps(contender, 1, max(50, round(ALONE[contender.name] * scale))).milliseconds


def _concurrent(contender: Contender, scale: float) -> float:
    return measures.run_steps(contender, _runs(contender, scale), measures.STEPS).per_second


def _runs(contender: Contender, scale: float) -> int:
    return max(measures.CONCURRENT, round(RUNS[contender.name] * scale))


def _wal_per_step(contender: Contender, scale: float) -> float:
    """What runs of many steps write more than the same runs without steps."""
    runs, steps = _runs(contender, scale), 5 * measures.STEPS
    stepped = measures.run_steps(contender, runs // 2, steps)
    empty = measures.run_steps(contender, runs // 2, steps, task="empty")
    return (stepped.wal_bytes - empty.wal_bytes) / (runs // 2 * steps)


def _wake(figures: Figures, contender: Contender, suspended: int, signals: int) -> None:
    try:
        woken = measures.wake(contender, suspended, signals)
    except Failure as failure:
        figures.failures.append(f"signals: {failure}")
        return
    figures.add("worker MB, suspended runs", woken.resident_mb)
    figures.add("ms from signal to resume, p99", woken.p99)


def section(figures: Figures, judged: dict[str, Bar], terms: str) -> str:
    """The part of docs/performance.md about workflows."""
    lines = [BEGIN, "", "## Durable steps", "", terms, ""]
    lines += ["|  | steps/s, 200 runs at once | one run alone, ms per step |", "|---|---|---|"]
    for name in SETTINGS:
        rate, alone = (figures.median(f"{name}, {what}") for what in ("steps/s", "ms per step"))
        if rate is not None or alone is not None:
            lines.append(f"| {name} | {_cell(rate, 0)} | {_cell(alone, 2)} |")
    lines += ["", "|  | must | measured |  |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {bar.words} | {_cell(bar.value, 2)} | {bar.verdict} |" for what, bar in judged.items()
    ]
    if figures.failures:
        lines += ["", "Failed: " + "; ".join(figures.failures) + "."]
    return "\n".join([*lines, "", END])


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def replace_section(page: Path, written: str) -> None:
    """Put the section where it was, or at the end."""
    text = page.read_text() if page.exists() else ""
    before, begun, rest = text.partition(BEGIN)
    after = rest.partition(END)[2] if begun else "\n"
    page.write_text(f"{before.rstrip()}\n\n{written}{after}" if before.strip() else f"{written}{after}")


def contender_of(peer: Peer, cluster: Cluster, workshop: Path) -> Contender:
    """The peer with the adapter that runs steps, in the environment of the peer."""
    command = environments.command(peer)
    command[-1] = f"{environments.ADAPTERS}.workflow_{peer.adapter}"
    # DBOS enqueues in bulk only tasks of its other adapter.
    peer = replace(peer, settings=SETTINGS[peer.name], bulk=peer is HOLDFAST)
    return Contender(peer, cluster, workshop, command)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="less is quicker; only 1 is what the targets mean"
    )
    parser.add_argument("--peers", default="absurd,dbos", help="beside Holdfast; empty for none")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    parser.add_argument("--page", type=Path, help="write the section into this page")
    given = parser.parse_args()
    configure("console", "warning")
    names = ["holdfast", *filter(None, given.peers.split(","))]
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        cluster = Cluster(Path(home) / "server", given.pg)
        with cluster.running():
            contenders = _installed(figures, names, cluster, Path(home))
            for number in range(given.rounds):
                print(f"Round {number + 1} of {given.rounds}", flush=True)
                order = contenders if number % 2 == 0 else contenders[::-1]
                measure_round(figures, order, given.scale)
    judged = targets(figures, given.scale)
    for what, bar in judged.items():
        print(f"{what:<52} must {bar.words:<22} {_cell(bar.value, 2):>10}  {bar.verdict}")
    if given.page is not None:
        replace_section(given.page, section(figures, judged, _terms(given.rounds, given.scale, given.pg)))
    return 1 if figures.failures or any(bar.met is False for bar in judged.values()) else 0


def _installed(figures: Figures, names: list[str], cluster: Cluster, home: Path) -> list[Contender]:
    contenders = []
    for name in names:
        try:
            contender = contender_of(EVERYONE[name], cluster, home)
            contender.install()
        except (environments.Unavailable, Failure) as problem:
            if name == HOLDFAST.name:
                raise
            figures.failures.append(f"{name}: {problem}")
            print(f"{name} is left out: {problem}", flush=True)
        else:
            contenders.append(contender)
    return contenders


def _terms(rounds: int, scale: float, version: int) -> str:
    packages = ", ".join(package for name in ("dbos", "absurd") for package in EVERYONE[name].packages)
    return (
        f"One run of `make bench-workflows`: {rounds} rounds at scale {scale:g}, everyone in turn in each, "
        f"PostgreSQL {version}, durable, Python {platform.python_version()}. A step returns 60 bytes. Peers: "
        f"{packages}. Medians over the rounds; ratios are taken within a round."
    )


if __name__ == "__main__":
    sys.exit(main())
