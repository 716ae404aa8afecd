"""docs/performance.md with its charts, and benchmarks/results.md, from the figures of one run."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import costs, sections
from benchmarks.peers import charts, targets
from benchmarks.peers.catalog import DRIVERS, EVERYONE, FLOOR, HOLDFAST
from benchmarks.peers.measures import FLEETS
from benchmarks.peers.report import COLUMNS, cell, figure
from benchmarks.peers.results import Record, Results

Figures = dict[str, Any]
BACKLOG = {"claim": "claim_micros", "finish": "finish_micros"}
PAYLOADS = {"enqueued in bulk": "enqueued_per_second", "run": "per_second"}
AGAINST_THE_FLOOR = ("drain", "enqueue")
GENERATED = "<!-- Written by `make bench-peers`. Do not edit: run it again. -->"


def write(figures: Figures, page: Path, details: Path) -> None:
    """The page, beside it a directory of charts, and what only those need who change the engine."""
    drawn = page.parent / "charts"
    drawn.mkdir(parents=True, exist_ok=True)
    results = Results([Record(**record) for record in figures["records"]])
    for name, chart in _charts(figures, results).items():
        (drawn / f"{name}.svg").write_text(chart)
    page.write_text("\n".join(_page(figures, results)) + "\n" + sections.kept(page))
    details.write_text("\n".join(_details(figures, results)) + "\n" + sections.kept(details))


def _page(figures: Figures, results: Results) -> Iterator[str]:
    yield from ("# Performance", "", GENERATED, "")
    yield _about(figures)
    yield from ("", "## Holdfast and its peers", "", "Medians over the rounds.", "")
    yield from _table(
        ["", *(heading.replace("\n", " ") for heading in COLUMNS)],
        [[name, *(cell(results, name, each) for each in COLUMNS.values())] for name in results.contenders],
    )
    yield from ("", "![Tasks a second through one worker process](charts/drain.svg)", "")
    yield from _failures(results)
    yield from ("Versions and settings (the best known for each):", "")
    yield from _table(["", "packages", "settings"], [_terms(name, figures) for name in results.contenders])
    yield from ("", "## As work grows", "")
    yield from _fleets(results)
    yield "Of Holdfast alone, once each."
    yield from _growth(figures)


def _about(figures: Figures) -> str:
    return (
        f"One run of `make bench-peers`: {figures['rounds']} rounds at scale {figures['scale']:g}, "
        f"everyone in turn in each, commit {figures['commit']}, {figures['cores']} cores, "
        f"{figures['machine']}, Python {figures['python']}, PostgreSQL {figures['pg']}, durable "
        f"(`fsync` and `synchronous_commit` on; {_words(figures['server'])}). "
        "`benchmarks/README.md` says what each column is. "
        "A figure counts only if each job ran exactly once."
    )


def _details(figures: Figures, results: Results) -> Iterator[str]:
    judged = targets.evaluate(results, figures["engine"], figures.get("idle"))
    yield from ("# Targets, parts and costs", "", GENERATED, "")
    yield f"The run of docs/performance.md: commit {figures['commit']}, {figures['cores']} cores."
    yield from (
        "",
        "## Targets",
        "",
        "Ratios are taken within a round; the median over the rounds is shown. Claims and heartbeats are",
        "measured once, each in turns with what it is compared with.",
        "",
    )
    yield from _table(
        ["", "must", "measured", "", "goal", "measured", ""],
        [[each.what, *_judged(each.must), *_judged(each.goal)] for each in judged],
    )
    yield from ("", *_missed(judged))
    if figures.get("failed"):
        yield from (f"Parts that failed: {'; '.join(figures['failed'])}.", "")
    yield from ("## How far from the floor", "")
    yield (
        "The floor is one plain table, updated in place, from the same driver in the same run: no leases, "
        "no tokens, no results. 1 is as fast as the floor; more is faster."
    )
    yield ""
    floor = [each for each in figures["engine"] if each["part"] in AGAINST_THE_FLOOR]
    yield from _table(["", "ratio"], [[each["what"], f"{each['value']:.2f}"] for each in floor])
    yield from ("", "## Where the time and the log go", "")
    yield from _time(results)
    yield from _drivers(results)
    if "costs" in figures:
        yield from ("", *costs.lines(figures["costs"]))


def _time(results: Results) -> Iterator[str]:
    worker, server, rate = (
        results.median(HOLDFAST.name, f"drain_1.{name}")
        for name in ("worker_micros", "postgres_micros", "per_second")
    )
    if worker is None or server is None or rate is None:
        return
    yield (
        f"In a drain a task that does nothing takes {1e6 / rate:.0f} µs. In that time the worker's process "
        f"computes for {worker:.0f} µs and the whole server for {server:.0f} µs, beside each other."
    )


def _drivers(results: Results) -> Iterator[str]:
    """Those that were measured with each driver."""
    figures = ("per_second", "caller_micros", "server_micros")
    columns = {
        f"{driver}, {unit}": (f"enqueue_by_driver.{driver}_{name}",)
        for driver in DRIVERS
        for name, unit in zip(figures, ("/s", "caller µs", "server µs"), strict=True)
    }
    rows = [[name, *(cell(results, name, each) for each in columns.values())] for name in results.contenders]
    measured = [row for row in rows if "-" not in row]
    if measured:
        yield ""
        yield (
            "Enqueued one by one by one process with the same driver on both sides: jobs a second, and "
            "microseconds of CPU per job of the caller and of the whole server. Medians over the rounds."
        )
        yield ""
        yield from _table(["", *columns], measured)


def _missed(judged: Sequence[targets.Target]) -> Iterator[str]:
    for kind, bars in (
        ("Missed targets", [(each.what, each.must) for each in judged]),
        ("Goals that are not reached yet", [(each.what, each.goal) for each in judged]),
        ("Not measured", [(each.what, each.must) for each in judged if each.must.met is None]),
    ):
        names = [
            f"{what} ({figure(bar.value)}, {bar.words})"
            for what, bar in bars
            if bar.met is False or kind == "Not measured"
        ]
        if names:
            yield from (f"{kind}: {'; '.join(names)}.", "")


def _fleets(results: Results) -> Iterator[str]:
    """Those of which every number of processes was measured."""
    measured = [name for name in results.contenders if results.median(name, f"fleet_{FLEETS[-1]}.per_second")]
    if not measured:
        return
    yield (
        "More worker processes, all on this machine and there before the first job: jobs a second of all "
        "together, and microseconds of CPU per job, workers + server. Medians over the rounds."
    )
    columns = {
        f"{number} processes": (
            (f"fleet_{number}.per_second",),
            (f"fleet_{number}.worker_micros", f"fleet_{number}.postgres_micros"),
        )
        for number in FLEETS
    }
    yield ""
    yield from _table(
        ["", *(f"{heading}, {unit}" for heading in columns for unit in ("/s", "µs"))],
        [
            [name, *(cell(results, name, each) for pair in columns.values() for each in pair)]
            for name in measured
        ],
    )
    yield from ("", "![Jobs a second over the number of worker processes](charts/workers.svg)", "")


def _growth(figures: Figures) -> Iterator[str]:
    """What was measured: a part that failed is not on the page."""
    growth = figures.get("growth", {})
    for points, words, names, chart in (
        (
            figures.get("backlogs"),
            (
                "A longer backlog: microseconds per task of a claim and a finish in batches of 200, "
                "and both as a multiple of what they take with 1,000 tasks, in turns."
            ),
            ("tasks", "claim_micros", "finish_micros", "against_1000"),
            "![Microseconds per task over the length of the backlog](charts/backlog.svg)",
        ),
        (
            growth.get("payloads"),
            (
                "Larger payloads: tasks a second enqueued in bulk and run by one worker, "
                "and bytes of WAL per run."
            ),
            ("bytes", "enqueued_per_second", "per_second", "wal_bytes"),
            "![Tasks a second over the size of the payload](charts/payloads.svg)",
        ),
    ):
        if points:
            yield from ("", words, "", *_points(points, names))
        if points and len(points) > 1:
            yield from ("", chart)


def _charts(figures: Figures, results: Results) -> dict[str, str]:
    growth = figures.get("growth", {})
    rates = {name: results.median(name, "drain_1.per_second") for name in results.contenders}
    found = {name: rate for name, rate in rates.items() if rate is not None}
    drawn = {}
    if found:
        drawn["drain"] = charts.bars("Tasks a second through one worker process", found, HOLDFAST.name)
    fleets = {
        name: [results.median(name, f"fleet_{number}.per_second") or 0.0 for number in FLEETS]
        for name in results.contenders
        if results.median(name, f"fleet_{FLEETS[-1]}.per_second")
    }
    if fleets:
        drawn["workers"] = charts.lines("Jobs a second over worker processes", [*map(float, FLEETS)], fleets)
    for name, title, points, across, named in (
        ("backlog", "Microseconds per task", figures.get("backlogs"), "tasks", BACKLOG),
        ("payloads", "Tasks a second", growth.get("payloads"), "bytes", PAYLOADS),
    ):
        if points and len(points) > 1:
            drawn[name] = _curves(title, points, across, named)
    return drawn


def _curves(title: str, points: Sequence[Mapping[str, float]], across: str, named: Mapping[str, str]) -> str:
    curves = {name: [point[key] for point in points] for name, key in named.items()}
    return charts.lines(title, [point[across] for point in points], curves)


def _points(points: Sequence[Mapping[str, float]], names: Sequence[str]) -> Iterator[str]:
    headings = [
        name.replace("_micros", ", µs").replace("per_second", "/s").replace("_", " ") for name in names
    ]
    across, *rest = names
    return _table(
        headings, [[f"{point[across]:,.0f}", *(figure(point[name]) for name in rest)] for point in points]
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _terms(name: str, figures: Figures) -> list[str]:
    peer = EVERYONE.get(name, FLOOR)
    packages = ", ".join(peer.packages) or f"this commit, {figures['commit']}"
    return [name, packages, _words({**peer.settings, **peer.idle_settings}) or "-"]


def _judged(bar: targets.Bar) -> tuple[str, str, str]:
    return bar.words, figure(bar.value), bar.verdict


def _failures(results: Results) -> Iterator[str]:
    for record in results.failures:
        yield f"- {record.contender} could not be measured in round {record.round} of {record.measure}."
    if results.failures:
        yield ""


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()), sections.PAGE, sections.DETAILS)
