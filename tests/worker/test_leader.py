"""One worker of a fleet sees to its duties, while its term certainly holds, and hands over when it stops."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from holdfast._connections.worker_connection import Outage
from holdfast._engine import Statement, health, workers
from holdfast._engine.health import HealthLine, health_line
from holdfast._engine.leases import FleetState
from holdfast._telemetry.logs import worker_log
from holdfast._worker.duties import UnservedQueues
from holdfast._worker.leader import MARGIN, Candidate, Execute, Leader
from holdfast.errors import DatabaseUnavailable, HoldfastError, InvalidArgument, TransactionConflict
from support.database import Database
from support.proxy import Proxy
from support.workshop import Workshop

TERM = timedelta(seconds=10)


class Chore:
    """A duty of a test: what it does is given, and how often it was done is known."""

    def __init__(
        self,
        name: str = "chore",
        does: Callable[[Execute], float | None] = lambda _: None,
        interval: float = 50,
    ) -> None:
        self.name = name
        self.interval = interval
        self.done = threading.Semaphore(0)
        self._does = does

    def run(self, ask: Execute) -> float | None:
        try:
            return self._does(ask)
        finally:
            self.done.release()

    def was_done(self, times: int = 1) -> bool:
        return all(self.done.acquire(timeout=30) for _ in range(times))


def leader_of(url: str, *duties: Chore, outage: Outage | None = None) -> Leader:
    log = worker_log("w1")
    return Leader(url=url, duties=duties, log=log, outage=outage or Outage(log), failed=_raise)


def _raise(thread: str, error: BaseException) -> None:
    raise error


@contextmanager
def leading(url: str, *duties: Chore, seconds: float = 60) -> Iterator[Leader]:
    leader = leader_of(url, *duties)
    leader.start()
    leader.appoint(time.monotonic() + seconds)
    try:
        yield leader
    finally:
        leader.close()
        assert not leader.is_alive()


def answering(*answers: Any) -> Callable[[Statement[Any]], Any]:
    """A database that says this, in this order; an exception is raised."""
    left = list(answers)

    def ask(statement: Statement[Any]) -> Any:
        answer = left.pop(0)
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    return ask


def state(term_left: timedelta | None) -> FleetState:
    return FleetState(registered=True, term_left=term_left, sweep_in=None)


@pytest.fixture
def leader(db: Database) -> Leader:
    return leader_of(db.dsn)


@pytest.fixture
def candidate(leader: Leader) -> Candidate:
    return Candidate("w1", TERM, leader, worker_log("w1"))


def seconds_until(due: float) -> float:
    return due - time.monotonic()


def test_a_term_is_counted_from_before_it_was_asked_for_and_not_used_to_its_end(
    candidate: Candidate, leader: Leader
) -> None:
    answered = 0.0

    def slow(statement: Statement[Any]) -> Any:
        nonlocal answered
        threading.Event().wait(0.2)
        answered = time.monotonic()
        return True

    candidate.run(slow)

    assert leader._acts_until <= answered - 0.2 + TERM.total_seconds() * (1 - MARGIN)


def test_a_leader_asks_for_its_next_term_three_times_before_the_present_one_ends(
    candidate: Candidate,
) -> None:
    candidate.run(answering(True))

    assert seconds_until(candidate.due) <= TERM.total_seconds() / 3


def test_who_does_not_lead_looks_again_right_after_the_present_term(candidate: Candidate) -> None:
    candidate.run(answering(False, state(timedelta(seconds=1))))

    assert seconds_until(candidate.due) < 1.5


def test_who_does_not_lead_looks_again_before_a_long_term_ends_because_it_may_be_handed_over(
    candidate: Candidate,
) -> None:
    candidate.run(answering(False, state(timedelta(hours=1))))

    assert seconds_until(candidate.due) <= TERM.total_seconds() / 2


def test_who_learns_otherwise_that_the_term_goes_on_does_not_look(candidate: Candidate) -> None:
    candidate.run(answering(False, state(timedelta(seconds=1))))

    candidate.learn(state(TERM), time.monotonic())

    assert seconds_until(candidate.due) > 2


def test_who_learns_that_nobody_leads_asks_soon(candidate: Candidate) -> None:
    candidate.run(answering(False, state(TERM)))

    candidate.learn(state(None), time.monotonic())

    assert seconds_until(candidate.due) < 1


def test_a_leader_that_learns_of_its_own_term_renews_it_as_planned(candidate: Candidate) -> None:
    candidate.run(answering(True))
    planned = candidate.due

    candidate.learn(state(timedelta(hours=1)), time.monotonic())

    assert candidate.due == planned


def test_who_is_told_that_another_leads_acts_no_more(candidate: Candidate, leader: Leader) -> None:
    candidate.run(answering(True))

    candidate.run(answering(False, state(TERM)))

    assert leader.seconds_left <= 0


def test_who_loses_a_race_looks_again_soon(candidate: Candidate) -> None:
    candidate.run(answering(TransactionConflict("locked")))

    assert seconds_until(candidate.due) < 1


def test_a_database_that_is_gone_is_the_matter_of_the_heartbeat(candidate: Candidate) -> None:
    with pytest.raises(DatabaseUnavailable):
        candidate.run(answering(DatabaseUnavailable("gone")))


async def test_a_refusal_is_logged_once_and_costs_no_heartbeat(shop: Workshop, leader: Leader) -> None:
    candidate = Candidate("w1", TERM, leader, worker_log("w1"))

    for _ in range(3):
        candidate.run(answering(InvalidArgument("no")))

    assert len(shop.lines("lead_refused")) == 1


def test_who_has_withdrawn_resigns_once_and_asks_no_more(candidate: Candidate) -> None:
    asked: list[str] = []

    def ask(statement: Statement[Any]) -> Any:
        asked.append(statement.sql)
        return True

    candidate.withdraw()
    assert seconds_until(candidate.due) <= 0
    candidate.run(ask)

    assert asked == [workers.resign("w1").sql]
    assert candidate.due == float("inf")


def test_duties_are_done_at_once_and_then_at_their_interval(db: Database) -> None:
    rare, often = Chore("rare"), Chore("often", interval=0.01)

    with leading(db.dsn, rare, often):
        assert rare.was_done()
        assert often.was_done(3)
        assert not rare.done.acquire(blocking=False)


def test_a_new_leader_begins_with_what_is_urgent(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._worker.leader.CLEANING_AFTER_SECONDS", 0.2)
    order: list[str] = []
    cleaning = Chore("cleaning", lambda _: order.append("cleaning"), interval=60)
    urgent = Chore("urgent", lambda _: order.append("urgent"), interval=0.01)

    with leading(db.dsn, cleaning, urgent):
        assert cleaning.was_done()
        assert order[0] == "urgent"


def test_a_duty_that_wants_to_go_on_gets_its_turn_after_the_others(db: Database) -> None:
    order: list[str] = []
    left = [0.0, 0.0]

    def greedy(_: Execute) -> float | None:
        order.append("greedy")
        return left.pop() if left else None

    def modest(_: Execute) -> float | None:
        order.append("modest")
        return None

    first, second = Chore("greedy", greedy), Chore("modest", modest)
    with leading(db.dsn, first, second):
        assert first.was_done(3)
        assert second.was_done()

    assert order == ["greedy", "modest", "greedy", "greedy"]


async def test_a_duty_that_fails_is_logged_and_keeps_no_other_from_its_turn(shop: Workshop) -> None:
    def fails(ask: Execute) -> None:
        raise ValueError("out of ideas")

    failing, other = Chore("failing", fails, interval=0.01), Chore("other", interval=0.01)
    with leading(shop.db.dsn, failing, other):
        await asyncio.to_thread(failing.was_done, 2)
        await asyncio.to_thread(other.was_done, 3)

    assert shop.lines("duty_failed", duty="failing", error="out of ideas")


async def test_an_outage_of_the_database_is_logged_once_and_then_how_long_it_lasted(
    shop: Workshop, proxy: Proxy
) -> None:
    def asks(ask: Execute) -> float | None:
        ask(health.clock())
        return None

    duties = [Chore(name, asks, interval=0.01) for name in ("one", "other")]
    with leading(proxy.dsn, *duties):
        await asyncio.to_thread(duties[0].was_done)
        proxy.close()
        await shop.logged("database_unavailable", connection="leader", level="warning")
        for duty in duties:
            await asyncio.to_thread(duty.was_done, 3)
        proxy.open()
        await shop.logged("database_back", connection="leader", level="info")
    assert not shop.lines("duty_failed")
    assert len(shop.lines("database_unavailable", level="warning")) == 1


async def test_who_lost_its_term_in_an_outage_does_not_tell_of_it_when_it_leads_again(
    shop: Workshop, proxy: Proxy
) -> None:
    def asks(ask: Execute) -> float | None:
        ask(health.clock())
        return None

    outage, duty = Outage(worker_log("w1")), Chore("one", asks, interval=0.01)
    leader = leader_of(proxy.dsn, duty, outage=outage)
    leader.start()
    try:
        leader.appoint(time.monotonic() + 60)
        await asyncio.to_thread(duty.was_done)
        proxy.close()
        await shop.logged("database_unavailable", connection="leader")
        leader.dismiss()
        await shop.logged("leading_stopped")
        outage.works("heartbeat")
        assert [line["connection"] for line in shop.lines("database_back")] == ["heartbeat"]
        proxy.open()
        leader.appoint(time.monotonic() + 60)
        await asyncio.to_thread(duty.was_done, 3)
    finally:
        leader.close()
    assert [line["connection"] for line in shop.lines("database_back")] == ["heartbeat"]


@pytest.mark.usefixtures("broken_logs")
def test_a_duty_that_fails_is_done_again_although_the_logs_are_broken(db: Database) -> None:
    def fail(_: Execute) -> float | None:
        raise RuntimeError("out of ideas")

    failing = Chore("failing", fail, interval=0.01)
    with leading(db.dsn, failing):
        assert failing.was_done(3)


def test_a_statement_that_fails_leaves_nothing_behind_for_the_next(db: Database) -> None:
    answers: list[Any] = []

    def asks(ask: Execute) -> float | None:
        if not answers:
            answers.append("asked")
            ask(workers.lead(""))
        answers.append(ask(health.clock()))
        return None

    chore = Chore(does=asks, interval=0.01)
    with leading(db.dsn, chore):
        assert chore.was_done(2)
    assert len(answers) >= 2


def test_a_duty_that_asks_after_the_term_has_ended_is_not_answered(db: Database) -> None:
    asked, ended = threading.Event(), threading.Event()
    answered = []

    def slow(ask: Execute) -> None:
        ask(health.clock())
        asked.set()
        ended.wait(30)
        answered.append(ask(health.clock()))

    chore = Chore(does=slow)
    with leading(db.dsn, chore) as leader:
        assert asked.wait(30)
        leader.dismiss()
        ended.set()
        assert chore.was_done()
    assert answered == []


async def test_a_statement_that_runs_past_the_term_is_cancelled_by_the_server(shop: Workshop) -> None:
    def sleeps(ask: Execute) -> None:
        ask(Statement("select pg_sleep(600)", (), lambda _: None))

    chore = Chore(does=sleeps)
    with leading(shop.db.dsn, chore, seconds=1):
        await shop.until(
            "select from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active'"
        )
        assert await asyncio.to_thread(chore.was_done)
        await shop.logged("leading_stopped", why="its term was not renewed")
    assert not shop.lines("duty_failed")


async def test_a_leader_that_stops_does_not_wait_for_a_long_statement(shop: Workshop) -> None:
    asked = threading.Event()

    def sleeps(ask: Execute) -> None:
        asked.set()
        ask(Statement("select pg_sleep(600)", (), lambda _: None))

    with leading(shop.db.dsn, Chore(does=sleeps), seconds=600):
        await asyncio.to_thread(asked.wait, 30)
    assert not shop.conn.execute(
        "select from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active'"
    ).fetchall()


async def test_of_two_workers_one_leads(shop: Workshop) -> None:
    async with shop.working() as one, shop.working() as other:
        await shop.logged("leading_started", worker_id=one.worker_id)
        await shop.until("select from queues.worker_status where leader and worker_id = %s", one.worker_id)
        assert not shop.lines("leading_started", worker_id=other.worker_id)


@pytest.mark.full
async def test_a_worker_that_stops_hands_over_before_its_handlers_have_ended(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(term="1m") as one:
        await shop.logged("leading_started", worker_id=one.worker_id)
        await shop.becomes(await long.aenqueue(), "running")
        async with shop.working(term="1s") as other:
            one.stop()
            await shop.logged("leading_started", worker_id=other.worker_id)
            assert shop.lines("leading_stopped", worker_id=one.worker_id, why="the worker stops")
            gate.set()


async def test_a_leader_that_cannot_reach_the_database_ends_by_itself_and_leads_again_later(
    shop: Workshop, proxy: Proxy
) -> None:
    async with shop.working(proxy.dsn, term="2s") as worker:
        await shop.logged("leading_started")
        proxy.freeze()
        await shop.logged("leading_stopped", why="its term was not renewed")
        proxy.thaw()
        await shop.sees(lambda: len(shop.lines("leading_started", worker_id=worker.worker_id)) == 2)


async def test_the_leader_names_each_queue_that_nobody_serves_once(shop: Workshop) -> None:
    def due(*queues: str) -> list[HealthLine]:
        return [
            health_line("unserved", "amber", queue, value=5.0, code="unserved", facts={"type": "a.b"})
            for queue in queues
        ]

    duty = UnservedQueues(worker_log("w1"))
    for found in (due("a"), due("a", "b"), due("b"), due("a", "b")):
        duty.run(lambda _, found=found: found)  # a database that says this
    assert [line["queue"] for line in shop.lines("queue_has_no_worker")] == ["a", "b", "a"]
