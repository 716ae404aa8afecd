"""Random histories of runs, by the real engine and by its model: steps, signals, waits and children."""

import os
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, invariant, multiple, rule, run_state_machine_as_test

from concurrency.test_model import EXAMPLES, STEPS, TYPES, Histories, Sessions, how_many, shifts
from support import engine
from support.database import Database
from support.engine import Row
from support.run_model import JOIN, RUN_PICTURES, Child, RunTwin, Wait
from support.task_model import Spec, Ticket

RUN_EXAMPLES = max(1, EXAMPLES // 4)
LOOKS = 3  # a look may move a pointer, and the next one sees what that one points to

tickets, tasks = Histories.tickets, Histories.tasks
ends = st.sampled_from(["succeeded", "failed", "retry", "cancelled"])


class RunHistories(Histories):
    model = RunTwin
    pictures = RUN_PICTURES
    twin: RunTwin

    # Rules for all tasks that say nothing about runs
    finish = finish_as_holder = enqueue_again = tidy = None  # type: ignore[assignment] # no rules
    pause = resume = set_limit = drop_limit = None  # type: ignore[assignment] # no rules

    @rule(ticket=tickets, status=ends, shift=shifts)
    def end(self, ticket: Ticket, status: str, shift: int) -> None:
        run_at = self.clock.after(shift)
        report = {"task_id": ticket.task_id, "token": ticket.token, "status": status, "run_at": run_at}
        answered = engine.finish(self.sessions.workers[ticket.worker_id], [report], ticket.worker_id)
        assert answered == [self.twin.finish(ticket, status, run_at)]

    @rule(task_id=tasks, shift=shifts)
    def reschedule(self, task_id: UUID, shift: int) -> None:
        """Of runs that wait for nothing: others would go on waiting until then."""
        if not self.twin.runs[task_id].waits:
            run_at = self.clock.after(shift)
            expected = self.twin.reschedule(self.twin.tasks[task_id], run_at)
            self._act("reschedule", task_id, expected, run_at=run_at)

    @rule(ticket=tickets, step=st.sampled_from(["a", "b", JOIN]), failed=st.booleans())
    def record(self, ticket: Ticket, step: str, failed: bool) -> None:
        kind = "children" if step == JOIN else "step"
        end = {"error": {"kind": "timeout"}} if failed else {"result": 1}
        verdict = self._record(ticket, {"name": step, "number": 1, "kind": kind, **end})
        assert verdict == self.twin.record(ticket, step, gives_up=failed and step == JOIN)

    @rule(ticket=tickets)
    def read_and_take_a_signal(self, ticket: Ticket) -> None:
        facts = engine.call(
            self.sessions.workers[ticket.worker_id],
            "queues.read_steps",
            {
                "worker_id": ticket.worker_id,
                "held": [{"task_id": ticket.task_id, "token": ticket.token, "signals": ["s", "other"]}],
            },
        )
        if not self.twin.tasks[ticket.task_id].is_held_by(ticket):
            assert [row["fact"] for row in facts] == ["lost"]
            return
        self._check_facts(ticket.task_id, facts)
        waiting = [row for row in facts if (row["fact"], row["name"]) == ("signal", "s")]
        payload = self.twin.take_signal(ticket, "s", "s")
        if payload is not None:
            assert waiting[0]["result"] == payload
            step = {"name": "s", "number": 1, "kind": "signal", "signal_id": waiting[0]["signal_id"]}
            assert self._record(ticket, step) == "recorded"

    @rule(target=tasks, ticket=tickets, count=st.integers(1, 3), leave=st.booleans())
    def start_children(self, ticket: Ticket, count: int, leave: bool) -> MultipleResults[UUID]:
        spec = Spec(TYPES[0], max_attempts=2)
        of = {"task_id": ticket.task_id, "token": ticket.token, "name": JOIN, "number": 1}
        answered = engine.call(
            self.sessions.workers[ticket.worker_id],
            "queues.start_children",
            {
                "worker_id": ticket.worker_id,
                "held": {**of, "awaited": True, "leave": leave},
                "tasks": [spec.arguments()] * count,
            },
        )
        expected = self.twin.start(ticket)
        assert {row["verdict"] for row in answered} == {expected}
        if expected != "started":
            return multiple()
        for row in answered:
            self.twin.enqueue(row["task_id"], spec)
            self.twin.runs[ticket.task_id].children.append(Child(row["task_id"], not leave))
        return multiple(*(row["task_id"] for row in answered))

    @rule(
        ticket=tickets,
        kinds=st.sets(st.sampled_from(["nap", "s", JOIN]), min_size=1),
        seconds=st.sampled_from([5, 60, 3600]),
    )
    def suspend(self, ticket: Ticket, kinds: set[str], seconds: int) -> None:
        until = self.clock.after(seconds)
        about: dict[str, Row] = {"nap": {}, "s": {"signal": "s"}, JOIN: {"policy": "all"}}
        waits = {
            "nap": Wait(until),
            "s": Wait(until, signal="s"),
            JOIN: Wait(until, pointer=0),
        }
        report = {
            "task_id": ticket.task_id,
            "token": ticket.token,
            "status": "suspend",
            "run_at": until,
            "waits": [{"name": kind, "until": until, **about[kind]} for kind in sorted(kinds)],
        }
        answered = engine.finish(self.sessions.workers[ticket.worker_id], [report], ticket.worker_id)
        assert answered == [self.twin.suspend(ticket, {kind: waits[kind] for kind in kinds})]

    @rule(
        task_id=tasks,
        name=st.sampled_from(["s", "s", "other"]),
        key=st.sampled_from([None, None, "k"]),
        payload=st.integers(1, 2),
    )
    def signal(self, task_id: UUID, name: str, key: str | None, payload: int) -> None:
        given = {"task_id": task_id, "name": name, "payload": payload, "key": key}
        answered = engine.answer(self.sessions.operator, "queues.signal", given)
        assert answered == self.twin.signal(self.twin.tasks[task_id], name, key, payload)

    @invariant()
    def every_task_stands_where_the_twin_says(self) -> None:
        for _ in range(LOOKS):
            engine.do_chores(self.sessions.workers["w1"])
        self.twin.settle()
        found = engine.rows(self.sessions.admin, self.pictures)
        assert {row.pop("task_id"): row for row in found} == self.twin.pictures()

    def _record(self, ticket: Ticket, step: Row) -> str:
        (row,) = engine.call(
            self.sessions.workers[ticket.worker_id],
            "queues.record_steps",
            {
                "worker_id": ticket.worker_id,
                "runs": [{"task_id": ticket.task_id, "token": ticket.token, "steps": [step]}],
            },
        )
        return str(row["verdict"])

    def _check_facts(self, task_id: UUID, facts: list[Row]) -> None:
        run = self.twin.runs[task_id]
        of = {kind: [row for row in facts if row["fact"] == kind] for kind in ("step", "signal", "wait")}
        assert {row["name"] for row in of["step"]} == run.steps.keys()
        unread = [(one.name, one.payload) for one in run.inbox if not one.taken]
        assert [(row["name"], row["result"]) for row in of["signal"]] == unread
        assert {row["name"]: row["until"] for row in of["wait"]} == {
            name: wait.until for name, wait in run.waits.items()
        }
        joined = [row for row in facts if row["fact"] == "children"]
        assert [row["number"] for row in joined] == ([len(run.children)] if run.children else [])
        open_children = [child for child in run.children if self.twin.is_open(child)]
        assert [row["error"]["open"] for row in joined] == ([len(open_children)] if run.children else [])


@pytest.mark.timeout(60 + RUN_EXAMPLES * 20)
def test_random_histories_of_runs_go_as_the_twin_says(
    db: Database, record_property: Callable[[str, object], None], pytestconfig: pytest.Config
) -> None:
    examples = how_many(RUN_EXAMPLES, pytestconfig)
    record_property("figures", f"{examples} random histories of runs, of up to {STEPS} steps")
    RunHistories.sessions = Sessions.open(db)
    run_state_machine_as_test(
        RunHistories,
        settings=settings(
            max_examples=examples,
            # The same histories each time; more of them, with HOLDFAST_MODEL_EXAMPLES, are new ones.
            derandomize="HOLDFAST_MODEL_EXAMPLES" not in os.environ,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
