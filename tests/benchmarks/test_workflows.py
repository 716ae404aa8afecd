from pathlib import Path

import pytest
from benchmarks.peers import page as peers
from benchmarks.workflow_measures import Stepped
from benchmarks.workflows import Figures, replace_section, section, targets


def test_steps_are_timed_from_one_start_to_the_next() -> None:
    stepped = Stepped([[0, 1_000_000, 3_000_000], [0, 2_000_000, 4_000_000]], wal_bytes=0)
    assert stepped.milliseconds == 2.0
    assert stepped.per_second == pytest.approx(1250)


def test_a_ratio_of_steps_is_taken_within_a_round() -> None:
    figures = Figures({"holdfast, steps/s": [9000.0, 4000.0, 8000.0], "dbos, steps/s": [300.0, 400.0, 200.0]})
    assert targets(figures, 1)["the same, against DBOS"].value == 30
    assert targets(figures, 1)["the same, against DBOS"].verdict == "met"
    assert targets(figures, 1)["the same, against absurd"].verdict == "not measured"


def test_a_second_run_replaces_the_section_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nOther figures.\n")
    for terms in ("first", "second"):
        replace_section(page, section(Figures(), targets(Figures(), 1), terms))
    text = page.read_text()
    assert text.startswith("# Performance\n\nOther figures.\n\n<!-- begin")
    assert "second" in text
    assert "first" not in text
    assert text.count("## Durable steps") == 1


def test_each_of_the_two_benchmarks_leaves_what_the_other_wrote(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nOther figures.\n")
    replace_section(page, section(Figures(), targets(Figures(), 1), "the terms"))

    page.write_text("# Performance\n\nNew figures.\n" + peers.steps(page.read_text()))
    assert "the terms" in page.read_text()
    replace_section(page, section(Figures(), targets(Figures(), 1), "newer terms"))

    text = page.read_text()
    assert text.startswith("# Performance\n\nNew figures.\n\n<!-- begin")
    assert "newer terms" in text
    assert text.count("## Durable steps") == 1
    assert text.endswith("-->\n")
