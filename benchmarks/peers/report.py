"""The printed tables."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.peers.results import Results
from benchmarks.peers.targets import Bar, Target

COLUMNS: dict[str, tuple[str, ...]] = {
    "enqueue\none by one\n/s": ("enqueue_one.per_second",),
    "bulk\nenqueue\n/s": ("enqueue_many.per_second",),
    "drain,\n1 process\n/s": ("drain_1.per_second",),
    "drain,\n2 processes\n/s": ("drain_2.per_second",),
    "commit → start\np50 / p95 / p99\nms": ("latency.p50", "latency.p95", "latency.p99"),
    "worker\nRSS\nMB": ("drain_1.resident_mb",),
    "WAL per job\nenqueue + run\nB": ("enqueue_one.wal_bytes", "drain_1.wal_bytes"),
    "CPU per job\nworker + server\nµs": ("drain_1.worker_micros", "drain_1.postgres_micros"),
}


def figure(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def print_medians(console: Console, results: Results) -> None:
    table = Table("", title="Medians", title_justify="left")
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for contender in results.contenders:
        table.add_row(contender, *(cell(results, contender, figures) for figures in COLUMNS.values()))
    console.print(table)


def print_targets(console: Console, targets: Sequence[Target]) -> None:
    table = Table("", title="Targets", title_justify="left")
    for heading in ("must", "measured", "", "goal", "measured", ""):
        table.add_column(heading, justify="right" if heading == "measured" else "left", no_wrap=True)
    for target in targets:
        table.add_row(target.what, *_judged(target.must, "bold red"), *_judged(target.goal, "yellow"))
    console.print(table)


def print_failures(console: Console, results: Results) -> None:
    for record in results.failures:
        what = (record.failure or "").splitlines()[0]
        console.print(
            f"round {record.round}, {record.contender}, {record.measure}: {what}", style="red", markup=False
        )


def cell(results: Results, contender: str, figures: tuple[str, ...]) -> str:
    between = " + " if len(figures) == 2 else " / "
    values = [results.median(contender, name) for name in figures]
    return between.join(figure(value) for value in values) if any(v is not None for v in values) else "-"


def _judged(bar: Bar, style_of_a_miss: str) -> tuple[str, str, str]:
    style = {True: "green", False: style_of_a_miss, None: "dim"}[bar.met]
    return bar.words, figure(bar.value), f"[{style}]{bar.verdict}[/]"
