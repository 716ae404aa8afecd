"""`make bench-peers`: Holdfast and its peers in one interleaved run. Exits with 1 when a target is missed."""

import argparse
import io
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import costs, engine, idle, sections
from benchmarks.peers import catalog, environments, growth, measures, page, report, targets
from benchmarks.peers.catalog import FLOOR, HOLDFAST, Peer
from benchmarks.peers.cluster import DURABLE, Cluster
from benchmarks.peers.contender import Contender, Failure
from benchmarks.peers.results import Record, Results

console = Console(width=None if sys.stdout.isatty() else 160)
OF_THE_FLOOR = {"enqueue_one", "enqueue_many", *measures.AGAINST_THE_FLOOR}
ALL_MEASURES = measures.EVERYONE | measures.AGAINST_THE_FLOOR | measures.OURS
EVERY_MEASURE = tuple(ALL_MEASURES)
ENGINE = ("drain", "enqueue", "limits", "waiting", "heartbeat", "backlog")
ENGINE_SCALE = 0.3
IDLE_WORKERS, IDLE_SECONDS = 100, 30.0
USUAL_SCALE = 0.3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default="default", help="default, all, or names with commas between them")
    parser.add_argument("--before", metavar="COMMIT", help="measure Holdfast as it was at this commit, too")
    parser.add_argument("--measures", default=",".join(EVERY_MEASURE), help="which, with commas between them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--scale", type=float, default=USUAL_SCALE, help=f"how many jobs; {USUAL_SCALE} unless given"
    )
    parser.add_argument(
        "--backlog", type=int, default=engine.BACKLOG, help="the longest backlog; ten million unless given"
    )
    parser.add_argument("--no-engine", action="store_true", help="leave out what makes up make bench")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write the page; docs/performance.md if nothing is left out or scaled down",
    )
    given = parser.parse_args()
    given.complete = given.measures == ",".join(EVERY_MEASURE) and not given.no_engine
    if given.page is None and given.complete and given.scale >= USUAL_SCALE:
        given.page = sections.PAGE
    if given.page is not None and not given.complete:
        parser.error("a page needs every measure")
    unknown = [name for name in given.measures.split(",") if name not in EVERY_MEASURE]
    if unknown:
        parser.error(f"{', '.join(unknown)}: no such measure; there are {', '.join(EVERY_MEASURE)}")
    return given


def contenders(peers: list[Peer], cluster: Cluster, workshop: Path) -> list[Contender]:
    """Those that can be had; the others are named with the reason."""
    found = []
    for peer in peers:
        try:
            contender = Contender(peer, cluster, workshop, environments.command(peer))
            contender.install()
        except (environments.Unavailable, Failure) as reason:
            console.print(f"{peer.name} is left out: {reason}", markup=False)
        else:
            found.append(contender)
    return found


def takes_part(contender: Contender, measure: str) -> bool:
    if contender.peer is FLOOR:
        return measure in OF_THE_FLOOR
    return measure in measures.EVERYONE or contender.peer.is_ours


def measured(contender: Contender, measure: str, number: int, scale: float) -> Record:
    try:
        values = ALL_MEASURES[measure](contender, scale)
    except Failure as failure:
        console.print(
            f"  round {number}  {contender.name:<16}{measure:<14}FAILED: {failure}", style="red", markup=False
        )
        return Record(number, contender.name, measure, {}, str(failure))
    said = "  ".join(f"{name} {report.figure(value)}" for name, value in values.items())
    console.print(f"  round {number}  {contender.name:<16}{measure:<14}{said}", markup=False, highlight=False)
    return Record(number, contender.name, measure, values)


def run(given: argparse.Namespace, home: Path, results: Results) -> dict[str, Any]:
    """Measure by measure, and in each everyone in turn: what else the machine does hits all alike."""
    parts = Parts()
    with Cluster(home / "postgres", given.pg).running() as cluster:
        earlier = [environments.before(given.before)] if given.before else []
        everyone = contenders([*catalog.chosen(given.peers), *earlier, FLOOR], cluster, home)
        for number in range(1, given.rounds + 1):
            parts.take(
                f"round {number} of {given.rounds}", partial(one_round, given, everyone, number, results)
            )
        if not given.no_engine:
            bench = engine.Bench(cluster.server, min(ENGINE_SCALE, given.scale), given.backlog)
            for part in ENGINE:
                parts.take(f"engine: {part}", partial(engine.run, bench, [part]))
            parts.found |= {"engine": [asdict(ratio) for ratio in bench.ratios], "backlogs": bench.points}
            parts.take("costs", partial(costs.measure, cluster), "costs")
        ours = [contender for contender in everyone if contender.peer is HOLDFAST]
        if given.page is not None and ours:
            parts.found["growth"] = {}
            for measure in growth.MEASURES:
                parts.take(f"growth: {measure}", partial(grown, measure, ours[0], given.scale, parts.found))
    if not given.no_engine:
        workers = partial(idle.measure, IDLE_WORKERS, IDLE_SECONDS, given.pg)
        parts.take(f"{IDLE_WORKERS} idle workers", workers, "idle")
    return {**parts.found, "failed": parts.failed}


class Parts:
    """The parts of a run, with the time that each takes. One that fails is named, and the others go on.

    After an interrupt no other part begins.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.found: dict[str, Any] = {}
        self.failed: list[str] = []
        self.interrupted = False

    def take(self, name: str, part: Callable[[], Any], key: str | None = None) -> None:
        if self.interrupted:
            return
        console.print(f"{time.strftime('%H:%M:%S')}  {name}", markup=False, highlight=False)
        began = time.monotonic()
        try:
            value = part()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what was measured is still written
            self.interrupted = isinstance(error, KeyboardInterrupt)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.failed.append(f"{name}: {reason}")
            console.print(f"{name} FAILED: {reason}", style="red", markup=False)
        else:
            if key is not None:
                self.found[key] = value
        now = time.monotonic()
        took = f"{now - began:.0f} s, {(now - self.began) / 60:.1f} min in all"
        said = f"{time.strftime('%H:%M:%S')}  {name}: {took}"
        console.print(said, markup=False, highlight=False)


def one_round(given: argparse.Namespace, everyone: list[Contender], number: int, results: Results) -> None:
    for measure in given.measures.split(","):
        for contender in everyone:
            if takes_part(contender, measure):
                results.add(measured(contender, measure, number, given.scale))


def grown(measure: str, ours: Contender, scale: float, found: dict[str, Any]) -> None:
    """Point by point, so that those before a failure are kept."""
    points = found["growth"].setdefault(measure, [])
    for point in growth.MEASURES[measure](ours, scale):
        said = "  ".join(f"{name} {report.figure(value)}" for name, value in point.items())
        console.print(f"  {measure:<14}{said}", markup=False, highlight=False)
        points.append(point)


def about(given: argparse.Namespace) -> dict[str, Any]:
    """What the figures were taken with."""
    asked = ["git", "-C", str(environments.ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "commit": commit or "unknown",
        "cores": os.cpu_count(),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "rounds": given.rounds,
        "scale": given.scale,
        "pg": given.pg,
        "server": DURABLE,
    }


def main() -> int:
    given, results = arguments(), Results()
    described = about(given)  # before the run, during which others may commit
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that a log file shows how far it is
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the page is written then, too
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        more = run(given, Path(home), results)
    judged = targets.evaluate(results, more.get("engine", ()), more.get("idle"))
    report.print_medians(console, results)
    report.print_targets(console, judged)
    report.print_failures(console, results)
    if "costs" in more:
        console.print("\n".join(costs.lines(more["costs"])), markup=False, highlight=False)
    figures = {**described, **more, "records": [vars(record) for record in results.records]}
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    if given.page:
        details = sections.DETAILS if given.page == sections.PAGE else given.page.with_suffix(".details.md")
        page.write(figures, given.page, details)
        console.print(f"The page is in {given.page}", markup=False)
    missed = [target.what for target in judged if target.must.met is False]
    ours = [record for record in results.failures if record.contender == HOLDFAST.name]
    return 1 if missed or ours or more["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
