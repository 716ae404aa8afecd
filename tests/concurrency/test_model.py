"""Random histories, run by the real engine and by its twin in Python: every answer and every state agrees.

`HOLDFAST_MODEL_EXAMPLES=5000 pytest tests/concurrency/test_model.py` looks further than the everyday run.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support import engine
from support.clock import NOON, Clock
from support.database import Database
from support.engine import Connection, Row
from support.invariant import assert_invariant
from support.task_model import PICTURES, Lane, Refused, Spec, Ticket, Twin, by_id, past

EXAMPLES = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "100"))
STEPS = 40
WORKERS = ["w1", "w2", "w3"]
TYPES = ["billing.charge", "billing.refund.v1", "billing_old.x", "default", "mail:send", "b%l.x"]
QUEUES = ["billing", "billing_old", "default", "mail", "b%l"]
PREFIXES = ["billing.", "billing", "b%", "b_l", "mail:", "default", ""]
STATUSES = ["succeeded", "failed", "retry", "snooze", "cancelled"]

workers = st.sampled_from(WORKERS)
leases = st.sampled_from([None, timedelta(seconds=1), timedelta(seconds=60)])
shifts = st.sampled_from([-60, 0, 5, 60, 3600])  # seconds from what the clock will say then
asked = st.fixed_dictionaries(
    {
        "type": st.sampled_from(TYPES),
        "payload": st.integers(0, 1),
        "queue": st.sampled_from([None, None, "default"]),
        "priority": st.sampled_from([0, 0, 5, -1]),
        "run_at": st.none() | shifts,
        "idempotency_key": st.sampled_from([None, None, "k1", "k2"]),
        "max_attempts": st.integers(1, 3),
        "lease": leases,
        "concurrency_key": st.sampled_from([None, None, None, "c1", "c2"]),
    }
)
at_once = asked.map(lambda given: {**given, "run_at": None, "idempotency_key": None})
subjects = st.sampled_from(
    [("queue", "billing"), ("queue", "default"), ("type", "billing.charge"), ("type", "mail:send")]
)
limits = st.sampled_from(
    [
        {"max_running": 1},
        {"max_running": 3, "per_key": 2},
        {"per_key": 1},
        {"rate": 2, "per": timedelta(minutes=1)},
        {"max_running": 2, "per_key": 2, "rate": 3, "per": timedelta(hours=1)},
    ]
)


@dataclass(frozen=True)
class Sessions:
    """Logins with the rights that they have in production, and one that reads the tables."""

    admin: Connection
    client: Connection
    operator: Connection
    workers: dict[str, Connection]

    @classmethod
    def open(cls, db: Database) -> "Sessions":
        admin = db.connect()
        engine.allow_changes(admin)
        return cls(
            admin,
            db.connect("holdfast_client"),
            db.connect("holdfast_operator"),
            {name: db.connect("holdfast_worker") for name in WORKERS},
        )


class Histories(RuleBasedStateMachine):
    sessions: Sessions
    model: type[Twin] = Twin
    pictures: str = PICTURES

    tasks = Bundle("tasks")
    tickets = Bundle("tickets")

    @initialize(target=tasks, given=st.lists(at_once, min_size=3, max_size=8))
    def begin(self, given: list[Row]) -> MultipleResults[UUID]:
        tables = ", ".join(f"queues.{table}" for table in (*engine.TABLES, "route"))
        self.sessions.admin.execute(f"truncate {tables}".encode())
        self.clock = Clock(self.sessions.admin)
        self.twin = self.model(NOON)
        self.cursors: dict[str, dict[str, Any]] = {name: {} for name in WORKERS}
        self.lanes: dict[Lane, int] = {}
        return self.enqueue_many(given)

    # Enqueue

    @rule(target=tasks, given=asked)
    def enqueue(self, given: Row) -> MultipleResults[UUID]:
        spec = self._spec(given)
        expected = answer_of(lambda: self.twin.expect_enqueued([spec]))
        answered = answer_of(lambda: engine.enqueue(self.sessions.client, **spec.arguments()))
        if expected != [0]:
            assert answered == expected if isinstance(expected, str) else [answered] == expected
            return multiple()
        self.twin.enqueue(answered, spec)
        return multiple(answered)

    @rule(target=tasks, task_id=tasks, given=asked)
    def enqueue_again(self, task_id: UUID, given: Row) -> MultipleResults[UUID]:
        """Mostly the same key, and as often as not another payload."""
        former = self.twin.tasks[task_id].spec
        return self.enqueue({**given, "type": former.type, "idempotency_key": former.idempotency_key})

    @rule(target=tasks, given=st.lists(asked, max_size=5))
    def enqueue_many(self, given: list[Row]) -> MultipleResults[UUID]:
        batch = [self._spec(element) for element in given]
        expected = answer_of(lambda: self.twin.expect_enqueued(batch))
        sent = [_as_json(spec) for spec in batch]
        answered = answer_of(lambda: engine.enqueue_many(self.sessions.client, sent))
        if isinstance(expected, str):
            assert answered == expected
            return multiple()

        assert [row["created"] for row in answered] == [holder == n for n, holder in enumerate(expected)]
        for row, spec, holder in zip(answered, batch, expected, strict=True):
            assert row["task_id"] == (answered[holder]["task_id"] if isinstance(holder, int) else holder)
            if row["created"]:
                self.twin.enqueue(row["task_id"], spec)
        return multiple(*(row["task_id"] for row in answered if row["created"]))

    # Claim and sweep

    @rule(
        target=tickets,
        worker_id=workers,
        max_tasks=st.integers(1, 4),
        queues=st.none() | st.lists(st.sampled_from(QUEUES), max_size=3),
        type_prefixes=st.none() | st.lists(st.sampled_from(PREFIXES), max_size=2),
        lease=leases,
        with_cursor=st.booleans(),
    )
    def claim(
        self,
        *,
        worker_id: str,
        max_tasks: int,
        queues: list[str] | None,
        type_prefixes: list[str] | None,
        lease: timedelta | None,
        with_cursor: bool,
    ) -> MultipleResults[Ticket]:
        cursor = self.cursors[worker_id] if with_cursor else {}
        due = self.twin.due(queues, type_prefixes)
        seen = [task for task in due if past(task, cursor, self.lanes)]
        expected = self.twin.picked(due, seen, max_tasks)
        if len(expected) < max_tasks:
            expected = self.twin.picked(due, due, max_tasks)
        self.twin.charge(expected)

        wanted = {"max_tasks": max_tasks, "queues": queues, "type_prefixes": type_prefixes, "lease": lease}
        session = self.sessions.workers[worker_id]
        answered = engine.claim(session, worker_id, **wanted, after=cursor or None)
        assert [row["task_id"] for row in answered] == by_id(expected)
        self._check_token({row["token"] for row in answered})
        tickets = []
        for row, task in zip(answered, expected, strict=True):
            held = self.twin.claim(task, row["token"], worker_id, lease)
            tickets.append(held.ticket)
            assert (row["type"], row["payload"]) == (task.spec.type, {"n": task.spec.payload})
            assert (row["attempt"], row["max_attempts"]) == (task.attempt, task.spec.max_attempts)
            assert (row["lease_until"], row["run_at"]) == (held.lease_until, task.run_at)
            self.lanes[task.lane] = row["lane_id"]
            place = {"run_at": row["run_at"], "task_id": row["task_id"]}
            self.cursors[worker_id][str(row["lane_id"])] = place
        return multiple(*tickets)

    @rule(target=tickets, worker_id=workers)
    def claim_everything(self, worker_id: str) -> MultipleResults[Ticket]:
        wanted = {"max_tasks": 100, "queues": None, "type_prefixes": [""], "lease": None}
        return self.claim(worker_id=worker_id, **wanted, with_cursor=False)

    @precondition(lambda self: self.twin.expired())
    @rule(max_tasks=st.sampled_from([1, 1000]))
    def sweep(self, max_tasks: int) -> None:
        expired = self.twin.expired()
        answered = engine.sweep(self.sessions.workers["w1"], max_tasks=max_tasks)
        remaining = self._leased()
        swept = [task for task in expired if task.task_id not in remaining]
        # Leases that end at one instant may go in any order, but none goes before one that ended earlier.
        ends = [task.lease.lease_until for task in expired if task.lease]
        gone = [task.lease.lease_until for task in swept if task.lease]
        assert gone == ends[:max_tasks]
        for task in swept:
            self.twin.sweep(task)
        dead = sum(task.place == "outcome" for task in swept)
        assert (answered["recovered"], answered["dead"]) == (len(swept) - dead, dead)

    @rule()
    def tidy(self) -> None:
        for function in ("tidy_lanes", "tidy_lanes"):
            engine.answer(self.sessions.workers["w1"], f"queues.{function}", {})
        live = {row["lane_id"] for row in engine.rows(self.sessions.admin, "select lane_id from queues.lane")}
        self.lanes = {lane: lane_id for lane, lane_id in self.lanes.items() if lane_id in live}

    # What workers report; most tickets are stale, and some are shown by somebody else

    @rule(worker_id=workers, given=st.lists(tickets, min_size=1, max_size=5), started=st.none() | shifts)
    def heartbeat(self, worker_id: str, given: list[Ticket], started: int | None) -> None:
        shown = [Ticket(each.task_id, each.token, worker_id) for each in dict.fromkeys(given)]
        started_at = self._shifted(started)
        sent = [{"task_id": each.task_id, "token": each.token, "started_at": started_at} for each in shown]
        answered = engine.heartbeat(self.sessions.workers[worker_id], sent, worker_id)
        assert answered == [self.twin.heartbeat(each, started_at) for each in shown]

    @rule(ticket=tickets)
    def heartbeat_as_holder(self, ticket: Ticket) -> None:
        self.heartbeat(ticket.worker_id, [ticket], None)

    @rule(
        worker_id=workers,
        given=st.lists(
            st.tuples(tickets, st.sampled_from(STATUSES), st.none() | shifts), min_size=1, max_size=5
        ),
    )
    def finish(self, worker_id: str, given: list[tuple[Ticket, str, int | None]]) -> None:
        results = [
            (Ticket(ticket.task_id, ticket.token, worker_id), status, self._shifted(shift))
            for ticket, status, shift in given
        ]
        sent = [
            {"task_id": ticket.task_id, "token": ticket.token, "status": status, "run_at": run_at}
            for ticket, status, run_at in results
        ]
        answered = engine.finish(self.sessions.workers[worker_id], sent, worker_id)
        # Of two results for one lease in one batch, either may be the one that counts.
        for n in sorted(range(len(results)), key=lambda n: answered[n] != "accepted"):
            ticket, status, run_at = results[n]
            assert self.twin.finish(ticket, status, run_at) == answered[n]
            if (answered[n], status, run_at) == ("accepted", "retry", None):
                self._learn_backoff(ticket.task_id)

    @rule(ticket=tickets, status=st.sampled_from(STATUSES), shift=st.none() | shifts)
    def finish_as_holder(self, ticket: Ticket, status: str, shift: int | None) -> None:
        self.finish(ticket.worker_id, [(ticket, status, shift)])

    @rule(worker_id=workers, given=st.lists(tickets, min_size=1, max_size=3))
    def release(self, worker_id: str, given: list[Ticket]) -> None:
        shown = [Ticket(each.task_id, each.token, worker_id) for each in dict.fromkeys(given)]
        sent = [{"task_id": each.task_id, "token": each.token} for each in shown]
        answered = engine.release(self.sessions.workers[worker_id], sent, worker_id)
        assert answered == [self.twin.release(each) for each in shown]

    @rule(ticket=tickets)
    def release_as_holder(self, ticket: Ticket) -> None:
        self.release(ticket.worker_id, [ticket])

    # What people do

    @rule(task_id=tasks)
    def cancel(self, task_id: UUID) -> None:
        self._act("cancel", task_id, self.twin.cancel(self.twin.tasks[task_id]))

    @rule(task_id=tasks)
    def retry(self, task_id: UUID) -> None:
        self._act("retry", task_id, answer_of(lambda: self.twin.retry(self.twin.tasks[task_id])))

    @rule(task_id=tasks)
    def delete(self, task_id: UUID) -> None:
        self._act("delete_task", task_id, self.twin.delete(self.twin.tasks[task_id]))

    @rule(task_id=tasks)
    def restore(self, task_id: UUID) -> None:
        self._act("restore_task", task_id, answer_of(lambda: self.twin.restore(self.twin.tasks[task_id])))

    @rule(task_id=tasks, shift=shifts)
    def reschedule(self, task_id: UUID, shift: int) -> None:
        run_at = self.clock.after(shift)
        expected = self.twin.reschedule(self.twin.tasks[task_id], run_at)
        self._act("reschedule", task_id, expected, run_at=run_at)

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        answered = engine.answer(self.sessions.operator, "queues.pause", {"queue": queue})
        assert answered == self.twin.pause(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        answered = engine.answer(self.sessions.operator, "queues.resume", {"queue": queue})
        assert answered == self.twin.resume(queue)

    @rule(subject=subjects, given=limits)
    def set_limit(self, subject: tuple[str, str], given: dict[str, Any]) -> None:
        kind, name = subject
        engine.call(self.sessions.operator, "queues.set_limit", {"subject": kind, "name": name, **given})
        self.twin.set_limit(kind, name, given)

    @rule(subject=subjects)
    def drop_limit(self, subject: tuple[str, str]) -> None:
        kind, name = subject
        given = {"subject": kind, "name": name}
        answered = engine.answer(self.sessions.operator, "queues.drop_limit", given)
        assert answered == (self.twin.limits.pop(subject, None) is not None)

    @rule(seconds=st.sampled_from([0.000001, 1, 5, 30.000001, 61, 3600]))
    def advance(self, seconds: float) -> None:
        self.twin.now = self.clock.advance(seconds)

    # What holds after every step

    @invariant()
    def every_task_stands_where_the_twin_says(self) -> None:
        found = engine.rows(self.sessions.admin, self.pictures)
        assert {row.pop("task_id"): row for row in found} == self.twin.pictures()

    @invariant()
    def limits_are_used_as_the_twin_says(self) -> None:
        found = engine.rows(self.sessions.admin, "select * from queues.limit_status")
        assert {
            (row["subject"], row["name"]): (row["running"], row["may_start"]) for row in found
        } == self.twin.limit_status()

    @invariant()
    def nothing_is_broken(self) -> None:
        assert_invariant(self.sessions.admin)

    def _act(self, function: str, task_id: UUID, expected: str, **arguments: Any) -> None:
        given = {"task_id": task_id, **arguments}
        answered = answer_of(lambda: engine.answer(self.sessions.operator, f"queues.{function}", given))
        assert answered == expected

    def _spec(self, given: Row) -> Spec:
        return Spec(**{**given, "run_at": self._shifted(given["run_at"])})

    def _shifted(self, shift: int | None) -> datetime | None:
        return None if shift is None else self.clock.after(shift)

    def _check_token(self, tokens: set[int]) -> None:
        if tokens:
            (token,) = tokens
            assert token > self.twin.last_token
            self.twin.last_token = token

    def _leased(self) -> set[UUID]:
        return {
            row["task_id"] for row in engine.rows(self.sessions.admin, "select task_id from queues.lease")
        }

    def _learn_backoff(self, task_id: UUID) -> None:
        task = self.twin.tasks[task_id]
        if task.outcome:
            return
        (row,) = engine.rows(self.sessions.admin, f"{PICTURES} where t.task_id = %s", [task_id])
        shortest = timedelta(seconds=2**task.attempt)
        assert self.twin.now + shortest <= row["run_at"] <= self.twin.now + shortest * 1.5
        task.run_at = row["run_at"]


def answer_of(call: Callable[[], Any]) -> Any:
    """What the call answers, or the SQLSTATE with which it is refused."""
    try:
        return call()
    except Refused as refusal:
        return str(refusal)
    except psycopg.Error as error:
        return error.sqlstate


def _as_json(spec: Spec) -> Row:
    arguments = spec.arguments()
    if "lease" in arguments:
        arguments["lease"] = arguments["lease"].total_seconds()
    return arguments


def how_many(examples: int, config: pytest.Config) -> int:
    """A quarter of them for `make test`, which leaves out what is marked as full."""
    return max(1, examples // 4) if config.option.markexpr == "not full" else examples


@pytest.mark.timeout(60 + EXAMPLES * 10)
def test_random_histories_go_as_the_twin_says(
    db: Database, record_property: Callable[[str, object], None], pytestconfig: pytest.Config
) -> None:
    examples = how_many(EXAMPLES, pytestconfig)
    record_property("figures", f"{examples} random histories of up to {STEPS} steps")
    Histories.sessions = Sessions.open(db)
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
