"""`make bench-peers`: Holdfast and its peers in one interleaved run. Exits with 1 when a target is missed."""

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.peers import catalog, environments, measures, report, targets
from benchmarks.peers.catalog import FLOOR, HOLDFAST, Peer
from benchmarks.peers.cluster import Cluster
from benchmarks.peers.contender import Contender, Failure
from benchmarks.peers.results import Record, Results

console = Console(width=None if sys.stdout.isatty() else 160)
ONLY_ENQUEUES = {"enqueue_one", "enqueue_many"}
EVERY_MEASURE = (*measures.EVERYONE, *measures.OURS)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default="default", help="default, all, or names with commas between them")
    parser.add_argument("--measures", default=",".join(EVERY_MEASURE), help="which, with commas between them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="how many jobs, as a part of the full run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    given = parser.parse_args()
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
        return measure in ONLY_ENQUEUES
    return measure in measures.EVERYONE or contender.peer is HOLDFAST


def measured(contender: Contender, measure: str, number: int, scale: float) -> Record:
    call = measures.EVERYONE.get(measure) or measures.OURS[measure]
    try:
        values = call(contender, scale)
    except Failure as failure:
        console.print(
            f"  round {number}  {contender.name:<16}{measure:<14}FAILED: {failure}", style="red", markup=False
        )
        return Record(number, contender.name, measure, {}, str(failure))
    said = "  ".join(f"{name} {report.figure(value)}" for name, value in values.items())
    console.print(f"  round {number}  {contender.name:<16}{measure:<14}{said}", markup=False, highlight=False)
    return Record(number, contender.name, measure, values)


def run(given: argparse.Namespace, home: Path) -> Results:
    """Measure by measure, and in each everyone in turn: what else the machine does hits all alike."""
    results = Results()
    with Cluster(home / "postgres", given.pg).running() as cluster:
        everyone = contenders([*catalog.chosen(given.peers), FLOOR], cluster, home)
        for number in range(1, given.rounds + 1):
            for measure in given.measures.split(","):
                for contender in everyone:
                    if takes_part(contender, measure):
                        results.add(measured(contender, measure, number, given.scale))
    return results


def main() -> int:
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        results = run(given, Path(home))
    judged = targets.evaluate(results)
    report.print_medians(console, results)
    report.print_targets(console, judged)
    report.print_failures(console, results)
    if given.json:
        machine = {
            "cores": os.cpu_count(),
            "machine": platform.platform(),
            "python": platform.python_version(),
        }
        results.write(given.json, {**machine, "rounds": given.rounds, "scale": given.scale, "pg": given.pg})
    missed = [target.what for target in judged if target.must.holds is False]
    ours = [record for record in results.failures if record.contender == HOLDFAST.name]
    return 1 if missed or ours else 0


if __name__ == "__main__":
    sys.exit(main())
