"""Schedules exist once: on the first shard. On another one they are neither added nor fired."""

from support import schedules
from support.clock import Clock
from support.engine import Connection, refused
from support.health import checks, line


def _becomes_shard(tx: Connection, number: int) -> None:
    tx.execute("select queues.number_shard(%s, %s, 3)", [f"s0{number}", number])


def test_on_another_shard_nothing_is_declared(tx: Connection) -> None:
    _becomes_shard(tx, 1)

    assert schedules.declare(tx, schedules.element("b"), schedules.element("a")) == {
        "a": "elsewhere",
        "b": "elsewhere",
    }
    assert tx.execute("select count(*) from queues.schedule").fetchone() == (0,)


def test_the_first_shard_has_them(tx: Connection) -> None:
    _becomes_shard(tx, 0)

    assert schedules.declare(tx, schedules.element("a")) == {"a": "added"}
    assert [one["name"] for one in schedules.due(tx)] == ["a"]


def test_on_another_shard_none_is_added(tx: Connection) -> None:
    _becomes_shard(tx, 2)

    with refused(tx, "QF412", "cannot be added to shard s02: schedules are on the first shard"):
        schedules.add(tx)


def test_one_that_is_left_on_another_shard_does_not_fire_is_reported_and_removed_by_its_application(
    tx: Connection, clock: Clock
) -> None:
    """A database may have had schedules before it became a shard."""
    schedules.declare(tx, schedules.element("a"), schedules.element("b"))
    schedules.plan(tx, schedules.at(13), "a")
    _becomes_shard(tx, 1)
    clock.advance(3600)

    assert schedules.due(tx) == []
    assert tx.execute("select queues.next_firing()").fetchone() == (None,)
    assert "s01 and does not fire" in line(tx, "misplaced_schedule", "a")["message"]
    schedules.declare(tx, schedules.element("a"))
    assert tx.execute("select count(*) from queues.schedule").fetchone() == (0,)
    assert "misplaced_schedule" not in checks(tx)
