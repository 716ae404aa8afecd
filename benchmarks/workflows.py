"""`make bench-workflows`: durable steps beside DBOS and absurd. Exits with 1 if a target is missed."""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks import sections
from benchmarks import workflow_measures as measures
from benchmarks.peers import environments
from benchmarks.peers.catalog import EVERYONE, HOLDFAST, Peer
from benchmarks.peers.cluster import Cluster
from benchmarks.peers.contender import Contender, Failure
from benchmarks.peers.targets import Bar
from holdfast._telemetry.logs import configure

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
CONTROL = "claims of two queues without them"


@dataclass
class Figures:
    """One value per round and figure; the median counts."""

    values: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)
        print(f"  {time.monotonic() - self.began:>5.0f} s  {name:<44} {value:>12,.3f}", flush=True)

    def take(self, name: str, measure: Callable[[], float]) -> None:
        self.take_several([name], lambda: (measure(),))

    def take_several(self, names: Sequence[str], measure: Callable[[], Sequence[float]]) -> None:
        """A part that fails is named on the page, and the others go on."""
        try:
            values = measure()
        except Exception as failure:  # noqa: BLE001 - a worker that died, a server that refused, a time that is over
            said = str(failure).splitlines() or [type(failure).__name__]
            self.failures.append(f"{names[0]}: {said[0]}")
            print(f"  {names[0]:<44} failed: {failure}", flush=True)
            return
        for name, value in zip(names, values, strict=True):
            self.add(name, value)

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
            "≤ 1.15 x the children", figures.ratio("s, joined", "s, children"), 1.15, at_least=False
        ),
    }


def measure_round(figures: Figures, contenders: list[Contender], scale: float, suspended: str) -> None:
    """`suspended` is the database with suspended runs."""
    ours = next(each for each in contenders if each.name == HOLDFAST.name)
    # A step and a commit in turns: on a busy machine, two separate measurements meet different loads.
    steps = max(60, round(ALONE[ours.name] * scale))
    figures.take_several(
        ["holdfast, ms per step", "ms per commit"], partial(measures.step_and_commit, ours, steps)
    )
    for each in contenders:
        if each is not ours:
            figures.take(f"{each.name}, ms per step", partial(_alone, each, scale))
    for each in contenders:
        figures.take(f"{each.name}, steps/s", partial(_concurrent, each, scale))
    figures.take("holdfast, WAL bytes per step", partial(_wal_per_step, ours, scale))
    figures.take_several(
        ["claims beside suspended runs", CONTROL], partial(measures.claims_beside_suspended, ours, suspended)
    )
    figures.take("worker MB, none", partial(measures.resident_alone, ours))
    signals = max(100, round(SIGNALS * scale))
    figures.take_several(
        ["worker MB, suspended runs", "ms from signal to resume, p99"],
        lambda: measures.wake(ours, suspended, signals).figures,
    )
    children = round(CHILDREN * scale)
    figures.take("s, children", partial(measures.children_alone, ours, children))
    figures.take("s, joined", partial(measures.children_joined, ours, children))


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


def section(figures: Figures, terms: str) -> str:
    """The part of docs/performance.md about workflows."""
    lines = ["## Durable steps", "", terms, ""]
    lines += ["|  | steps/s, 200 runs at once | one run alone, ms per step |", "|---|---|---|"]
    for name in SETTINGS:
        rate, alone = (figures.median(f"{name}, {what}") for what in ("steps/s", "ms per step"))
        if rate is not None or alone is not None:
            lines.append(f"| {name} | {_cell(rate, 0)} | {_cell(alone, 2)} |")
    return "\n".join(lines)


def details(figures: Figures, judged: dict[str, Bar], terms: str) -> str:
    lines = ["## Durable steps", "", terms, "", "|  | must | measured |  |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {bar.words} | {_cell(bar.value, 2)} | {bar.verdict} |" for what, bar in judged.items()
    ]
    commit, control = figures.median("ms per commit"), figures.median(CONTROL)
    if commit is not None:
        taken = "by psycopg, prepared, in the process of the worker and in turns with its steps"
        lines += ["", f"The commit is that of one small row, {taken}: {commit:.2f} ms."]
    if control is not None:
        lines += ["", f"The noise of the claims: {control:.2f} between two queues without suspended runs."]
    if figures.failures:
        lines += ["", "Failed: " + "; ".join(figures.failures) + "."]
    return "\n".join(lines)


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


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
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md and benchmarks/results.md"
    )
    parser.add_argument("--minutes", type=float, default=18, help="begin no round that would end later")
    given = parser.parse_args()
    configure("console", "warning")
    terms = _terms(given)  # before the run, during which others may commit
    figures = Figures()
    try:
        rounds = _measure(figures, given)
    except KeyboardInterrupt:
        rounds = 0
        figures.failures.append("the run was interrupted")
    judged = targets(figures, given.scale)
    for what, bar in judged.items():
        print(f"{what:<52} must {bar.words:<22} {_cell(bar.value, 2):>10}  {bar.verdict}")
    if given.write and figures.values:
        terms = f"{rounds} rounds of {terms}"
        sections.put(sections.PAGE, sections.WORKFLOWS, section(figures, terms))
        sections.put(sections.DETAILS, sections.WORKFLOWS, details(figures, judged, terms))
    return 1 if figures.failures or any(bar.met is False for bar in judged.values()) else 0


def _measure(figures: Figures, given: argparse.Namespace) -> int:
    """All rounds for which there is time. Returns how many."""
    names = ["holdfast", *filter(None, given.peers.split(","))]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        cluster = Cluster(Path(home) / "server", given.pg)
        with cluster.running():
            contenders = _installed(figures, names, cluster, Path(home))
            print(f"{round(SUSPENDED * given.scale):,} runs are suspended", flush=True)
            with measures.suspended_runs(contenders[0], round(SUSPENDED * given.scale)) as suspended:
                for number in range(given.rounds):
                    began = time.monotonic()
                    print(f"Round {number + 1} of {given.rounds}", flush=True)
                    order = contenders if number % 2 == 0 else contenders[::-1]
                    measure_round(figures, order, given.scale, suspended)
                    now = time.monotonic()
                    if now - figures.began + (now - began) > given.minutes * 60:
                        break
    return number + 1


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


def _terms(given: argparse.Namespace) -> str:
    packages = ", ".join(package for name in ("dbos", "absurd") for package in EVERYONE[name].packages)
    asked = ["git", "-C", str(environments.ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return (
        f"`make bench-workflows` at scale {given.scale:g}, everyone in turn in each, commit {commit}, "
        f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}, PostgreSQL "
        f"{given.pg}, durable. A step returns 60 bytes. Peers: {packages}. Medians over the rounds; "
        "ratios are taken within a round."
    )


if __name__ == "__main__":
    sys.exit(main())
