"""The page about performance: written from figures, and nothing else is on it."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from benchmarks.peers import page
from benchmarks.peers.measures import FLEETS

from benchmarks import costs, sections

CPU = ("floor_client", "floor_server", "client", "server", *costs.PARTS)


def _ratio(part: str, what: str, value: float) -> dict[str, Any]:
    return {"part": part, "what": what, "value": value, "must": 0.6, "goal": 0.8, "at_least": True}


def _figures() -> dict[str, Any]:
    drained = {"per_second": 20_000.0, "worker_micros": 21.5, "postgres_micros": 30.0, "resident_mb": 66.0}
    return {
        "commit": "0c0ffee",
        "cores": 2,
        "machine": "a machine",
        "python": "3.11.7",
        "rounds": 1,
        "scale": 1.0,
        "pg": 18,
        "server": {"shared_buffers": "1GB"},
        "records": [
            {"round": 1, "contender": name, "measure": "drain_1", "values": drained, "failure": None}
            for name in ("holdfast", "pgqueuer")
        ]
        + [
            {"round": 1, "contender": "holdfast", "measure": f"fleet_{n}", "values": drained, "failure": None}
            for n in FLEETS
        ]
        + [
            {
                "round": 1,
                "contender": "holdfast",
                "measure": "enqueue_by_driver",
                "values": {
                    f"{driver}_{name}": 2_000.0
                    for driver in ("asyncpg", "psycopg")
                    for name in ("per_second", "caller_micros", "server_micros")
                },
                "failure": None,
            }
        ],
        "engine": [
            _ratio("drain", "1 KB payload, claimed and finished", 1.07),
            _ratio("limits", "1,000 at once of the queue", 0.43),
        ],
        "backlogs": [
            {"tasks": tasks, "claim_micros": 20.0, "finish_micros": 12.0, "against_1000": 1.04}
            for tasks in (1_000.0, 10_000.0)
        ],
        "idle": 12.0,
        "costs": {
            "server": 18,
            "log": [
                {
                    "what": "claim",
                    "record": "Heap INSERT",
                    "relation": "lease",
                    "records": 1.0,
                    "bytes": 125.0,
                }
            ],
            "cpu": [
                {"bytes": 1_000, "batch": 1_000, **dict.fromkeys(CPU, 2.5)},
            ],
        },
        "growth": {
            "payloads": [
                {"bytes": size, "enqueued_per_second": 9_000.0, "per_second": 800.0, "wal_bytes": 700.0}
                for size in (100.0, 1_000.0)
            ],
        },
    }


def test_a_page_and_its_charts_are_made_of_figures(tmp_path: Path) -> None:
    page.write(_figures(), tmp_path / "performance.md", tmp_path / "results.md")

    text = (tmp_path / "performance.md").read_text()
    details = (tmp_path / "results.md").read_text()
    assert "| holdfast | - | - | 20,000 |" in text
    assert "pgqueuer[asyncpg]==" in text
    assert "| 1 KB payload, claimed and finished | 1.07 |" in details
    limited = "claim + finish under a limit: 1,000 at once of the queue"
    assert f"| {limited} | ≥ 0.6 x | 0.43 | MISSED | ≥ 0.8 x | 0.43 | MISSED |" in details
    assert f"Missed targets: {limited} (0.43, ≥ 0.6 x)." in details
    assert "| claim | Heap INSERT | lease | 1.00 | 125 |" in details
    assert "| 1,000 | 1,000 | 2.5 |" in details
    assert "| holdfast | 20,000 | 21.5 + 30.0 | 20,000 | 21.5 + 30.0 | 20,000 | 21.5 + 30.0 |" in text
    assert "|  | asyncpg, /s | asyncpg, caller µs | asyncpg, server µs |" in details
    assert f"| holdfast{' | 2,000' * 6} |" in details
    charts = sorted((tmp_path / "charts").iterdir())
    assert [chart.name for chart in charts] == ["backlog.svg", "drain.svg", "payloads.svg", "workers.svg"]
    for chart in charts:
        assert ET.parse(chart).getroot().tag.endswith("svg")  # noqa: S314 - just written
        assert f"(charts/{chart.name})" in text


def test_parts_that_failed_are_named_and_the_page_has_the_others(tmp_path: Path) -> None:
    figures = {**_figures(), "growth": {}, "backlogs": [], "failed": ["costs: no pg_waldump"]}
    figures["records"] = [record for record in figures["records"] if record["measure"] == "drain_1"]
    for part in ("costs", "idle"):
        del figures[part]

    page.write(figures, tmp_path / "performance.md", tmp_path / "results.md")

    text = (tmp_path / "performance.md").read_text()
    details = (tmp_path / "results.md").read_text()
    assert "Parts that failed: costs: no pg_waldump." in details
    assert "100 idle workers (-, ≤ 40 transactions/s)" in details
    assert "| holdfast | - | - | 20,000 |" in text
    assert [chart.name for chart in (tmp_path / "charts").iterdir()] == ["drain.svg"]


def test_the_sections_of_other_benchmarks_stay_on_the_page(tmp_path: Path) -> None:
    written = tmp_path / "performance.md"
    written.write_text("# Performance\n\nOf last year.\n")
    for name in (sections.PAGES, sections.WORKFLOWS):
        sections.put(written, name, f"## Of {name}")

    for _ in range(2):
        page.write(_figures(), written, tmp_path / "results.md")

    text = written.read_text()
    assert [text.count(f"## Of {name}\n") for name in (sections.PAGES, sections.WORKFLOWS)] == [1, 1]
    assert "Of last year" not in text


def test_a_second_run_replaces_its_section_and_nothing_else(tmp_path: Path) -> None:
    written = tmp_path / "performance.md"
    written.write_text("# Performance\n\nOther figures.\n")
    sections.put(written, sections.WORKFLOWS, "first")
    sections.put(written, sections.PAGES, "pages")
    sections.put(written, sections.WORKFLOWS, "second")

    text = written.read_text()
    assert text.startswith(
        "# Performance\n\nOther figures.\n\n<!-- begin: make bench-workflows -->\n\nsecond\n"
    )
    assert "first" not in text
    assert text.endswith("\n\n<!-- begin: make bench-pages -->\n\npages\n\n<!-- end: make bench-pages -->\n")


def test_the_page_in_the_handbook_was_written_by_the_benchmark() -> None:
    for written in (sections.PAGE, sections.DETAILS):
        text = written.read_text()
        assert page.GENERATED in text
        first = "## Holdfast and its peers" if written == sections.PAGE else "## Targets"
        assert next(line for line in text.splitlines() if line.startswith("## ")) == first
