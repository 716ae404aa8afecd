"""The clock of a sandbox applies to the whole engine and every connection."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App
from holdfast._engine import Engine, health
from holdfast.errors import InvalidArgument
from holdfast.testing import Sandbox

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def test_it_goes_on_by_itself_at_first(holdfast: Sandbox) -> None:
    assert holdfast.clock.now() < holdfast.clock.now()


def test_once_set_it_stands_still_for_every_connection(holdfast: Sandbox) -> None:
    assert holdfast.clock.set(NOON) == NOON
    assert Engine(holdfast.connect()).run(health.clock()) == NOON
    assert holdfast.clock.now() == NOON


def test_it_is_advanced_from_where_it_stands(holdfast: Sandbox) -> None:
    holdfast.clock.set(NOON)
    span = timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert holdfast.clock.advance(days=1, hours=2, minutes=3, seconds=4.5) == NOON + span
    assert holdfast.clock.advance(seconds=1) == holdfast.clock.now()


def test_it_goes_on_from_where_it_was_advanced_to_if_it_did_before(holdfast: Sandbox) -> None:
    before = holdfast.clock.now()
    later = holdfast.clock.advance(days=1)
    assert later >= before + timedelta(days=1)
    assert holdfast.clock.now() > later


def test_frozen_it_stands_where_it_was(holdfast: Sandbox) -> None:
    before = holdfast.clock.advance(days=1)
    frozen = holdfast.clock.freeze()
    assert before < frozen < before + timedelta(minutes=1)
    assert holdfast.clock.now() == frozen


def test_it_may_be_set_back(holdfast: Sandbox) -> None:
    holdfast.clock.set(NOON)
    assert holdfast.clock.set(NOON - timedelta(days=1)) == NOON - timedelta(days=1)


def test_a_time_without_a_zone_is_refused(holdfast: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="no time zone"):
        holdfast.clock.set(NOON.replace(tzinfo=None))


def test_it_is_not_advanced_backwards(holdfast: Sandbox) -> None:
    with pytest.raises(ValueError, match="to move it back, use set"):
        holdfast.clock.advance(hours=-1)


def test_a_task_for_tomorrow_runs_tomorrow(holdfast: Sandbox, app: App) -> None:
    @app.task("mail.remind")
    def remind() -> str:
        return "reminded"

    handle = remind.using(delay=timedelta(days=1)).enqueue()
    assert holdfast.drain() == []
    assert handle.status() == "scheduled"
    holdfast.clock.advance(days=1)
    assert handle.status() == "pending"
    assert [ran.result for ran in holdfast.drain()] == ["reminded"]
