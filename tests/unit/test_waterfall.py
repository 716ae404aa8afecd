"""The waterfall: work in proportion to its length, pauses of any length with the same width."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

from holdfast._engine.steps import TimelineEntry
from holdfast.server.pages.waterfall import MAX_ROWS, Scale, Waterfall, waterfall

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def entry(happened: str, start: float, end: float | None = None, name: str | None = None, **more: Any) -> Any:
    fields = dict.fromkeys(("attempt", "tries", "worker_id", "actor", "reason", "related_id")) | more
    ended = at(start) if end is None else at(end)
    return TimelineEntry(happened=happened, name=name, started_at=at(start), ended_at=ended, **fields)


def drawn(entries: list[TimelineEntry], now: float) -> Waterfall:
    run = waterfall(entries, at(now))
    assert run is not None
    return run


def test_a_task_without_steps_has_none() -> None:
    assert waterfall([entry("created", 0), entry("claimed", 1), entry("succeeded", 2)], at(3)) is None


def test_a_week_of_waiting_leaves_room_for_seconds_of_work() -> None:
    week = 7 * 86400.0
    scale = Scale([(at(0), at(1)), (at(week), at(week + 1))], at(0), at(week + 1))
    assert 30 < scale.place(at(1)) < 50
    assert scale.place(at(week)) - scale.place(at(1)) < 25
    assert scale.place(at(week + 1)) == 100


def test_places_never_go_back() -> None:
    scale = Scale([(at(5), at(6)), (at(5.5), at(9)), (at(40), at(41))], at(0), at(100))
    places = [scale.place(at(n / 2)) for n in range(-4, 220)]
    assert all(a <= b for a, b in pairwise(places))
    assert (places[0], places[-1]) == (0, 100)


def test_failed_tries_children_and_signals_belong_to_their_step() -> None:
    run = drawn(
        [
            entry("created", 0),
            entry("claimed", 0, attempt=1, worker_id="w1"),
            entry("try", 1, 2, "charge", tries=1, reason="declined"),
            entry("step", 1, 3, "charge", tries=2),
            entry("children", 3, 5, "pack", tries=1),
            *[entry("child", 3, 4, "pack", related_id=uuid4(), reason="succeeded") for _ in range(3)],
            entry("signalled", 5, None, "approval", actor="ada"),
            entry("signal", 5, 6, "approval", tries=1),
            entry("succeeded", 7),
        ],
        now=60,
    )
    attempts, charge, pack, approval = run.rows
    assert attempts.bars[0].title == "attempt 1 on w1, 7.0 s"
    assert (charge.note, [title for _, title in charge.ticks]) == (
        "2.0 s, 2 tries",
        ["try 1 failed: declined"],
    )
    assert (pack.note, len(pack.children)) == ("3 of 3 children ended, 2.0 s", 3)
    assert [title for _, title in approval.ticks] == ["signal from ada"]


def test_what_a_run_waits_for_is_drawn_up_to_now() -> None:
    run = drawn(
        [
            entry("created", 0),
            entry("claimed", 0, attempt=1, worker_id="w1"),
            entry("suspended", 1),
            entry("waits", 9999, None, "approval", reason="signal approval"),
        ],
        now=60,
    )
    row = run.rows[-1]
    assert row.note.startswith("waits for signal approval until 2026-03-01")
    assert round(row.bars[0].left + row.bars[0].width) == 100


def test_a_long_run_is_cut() -> None:
    steps = [entry("step", n, n + 1, f"step#{n}", tries=1) for n in range(MAX_ROWS + 50)]
    run = drawn([entry("claimed", 0, attempt=1, worker_id="w1"), *steps], now=9999)
    assert (len(run.rows), run.left_out) == (MAX_ROWS + 1, 50)


def test_a_pause_is_a_break_that_says_how_long_it_was() -> None:
    week = 7 * 86400.0
    scale = Scale([(at(0), at(1)), (at(week), at(week + 1))], at(0), at(week + 1))
    [pause] = scale.breaks()
    assert (pause.left, pause.label) == (scale.place(at(1)), "6 d 23 h")
    assert pause.left + pause.width == scale.place(at(week))


def test_the_labels_of_the_scale_are_round_times_apart_from_each_other_and_from_breaks() -> None:
    scale = Scale([(at(0), at(30)), (at(9000), at(9030))], at(0), at(9030))
    marks, [pause] = scale.marks(), scale.breaks()
    assert marks[0] == (0.0, "0")
    assert [label for _, label in marks][:5] == ["0", "10 s", "20 s", "30 s", "2:30:10"]
    assert all(b - a >= 13 for (a, _), (b, _) in pairwise(marks))
    assert not any(pause.left < left < pause.left + pause.width for left, _ in marks)


def test_failed_tries_are_said_in_words() -> None:
    run = drawn(
        [
            entry("claimed", 0, attempt=1, worker_id="w1"),
            entry("try", 1, 2, "charge", tries=1, reason="declined"),
            entry("step", 1, 3, "charge", tries=2),
            entry("succeeded", 7),
        ],
        now=60,
    )
    assert run.rows[1].tries == ["Try 1 failed at 2026-03-01 12:00:02 UTC: declined"]
    assert run.worked == timedelta(seconds=7)
