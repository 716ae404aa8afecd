"""A model of the engine in plain Python: what each call returns and the state of every task."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from support.engine import Row

Lane = tuple[str, str, int, str | None]
"""A queue, a type, a priority and a concurrency key."""

DEFAULT_LEASE = timedelta(seconds=30)
RETRIABLE = {"failed", "dead_letter", "cancelled"}


class Refused(Exception):
    """The call is refused with this SQLSTATE and changes nothing."""


@dataclass(frozen=True)
class Spec:
    """What a caller asks for."""

    type: str
    payload: int = 0
    queue: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    idempotency_key: str | None = None
    max_attempts: int = 3
    lease: timedelta | None = None
    concurrency_key: str | None = None

    @property
    def routed_to(self) -> str:
        return self.queue or self.type.split(".")[0].split(":")[0]

    @property
    def key(self) -> tuple[str, str] | None:
        return (self.type, self.idempotency_key) if self.idempotency_key else None

    def arguments(self) -> Row:
        given = {
            "queue": self.queue,
            "run_at": self.run_at,
            "idempotency_key": self.idempotency_key,
            "lease": self.lease,
            "concurrency_key": self.concurrency_key,
        }
        return {
            "type": self.type,
            "payload": {"n": self.payload},
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            **{name: value for name, value in given.items() if value is not None},
        }


@dataclass(frozen=True)
class Ticket:
    """What a worker got at a claim; it may long be worth nothing."""

    task_id: UUID
    token: int
    worker_id: str


@dataclass
class Lease:
    ticket: Ticket
    claimed_at: datetime
    lease_until: datetime
    length: timedelta
    started_at: datetime | None = None


@dataclass
class Task:
    task_id: UUID
    spec: Spec
    run_at: datetime
    attempt: int = 0
    place: str = "ready"
    deleted: bool = False
    lease: Lease | None = None
    outcome: str | None = None
    ended_by: int | None = None

    @property
    def order(self) -> tuple[int, datetime, UUID]:
        return -self.spec.priority, self.run_at, self.task_id

    @property
    def lane(self) -> Lane:
        return self.spec.routed_to, self.spec.type, self.spec.priority, self.spec.concurrency_key

    def is_held_by(self, ticket: Ticket) -> bool:
        return self.lease is not None and self.lease.ticket == ticket

    def status(self, now: datetime) -> str:
        if self.outcome:
            return self.outcome
        if self.lease:
            return "running" if self.lease.started_at else "claimed"
        if self.attempt:
            return "retrying"
        return "scheduled" if self.run_at > now else "pending"

    def picture(self, now: datetime) -> Row:
        """What `PICTURES` finds for this task."""
        held = self.lease
        return {
            "place": self.place,
            "status": self.status(now),
            "attempt": self.attempt,
            "run_at": self.run_at if self.place in {"ready", "lease", "parked"} else None,
            "deleted": self.deleted,
            "token": held.ticket.token if held else self.ended_by,
            "worker_id": held.ticket.worker_id if held else None,
            "lease_until": held.lease_until if held else None,
            "started_at": held.started_at if held else None,
        }


@dataclass
class Limit:
    """Of a queue or a type. A rate is a bucket that fills evenly."""

    max_running: int | None
    per_key: int | None
    rate: int | None
    per: timedelta | None
    tokens: float
    counted_at: datetime

    def tokens_at(self, now: datetime) -> float:
        assert self.rate is not None
        assert self.per is not None
        elapsed = max(0.0, (now - self.counted_at).total_seconds())
        return min(float(self.rate), self.tokens + elapsed * self.rate / self.per.total_seconds())


@dataclass(frozen=True)
class Gate:
    """What is counted together: tasks of a queue or a type, or those of one key among them."""

    subject: str
    name: str
    key: str | None = None

    def counts(self, spec: Spec) -> bool:
        name = spec.routed_to if self.subject == "queue" else spec.type
        return name == self.name and (self.key is None or spec.concurrency_key == self.key)


PICTURES = """
    select t.task_id, concat_ws(' and ',
        case when r.task_id is not null then 'ready' end, case when l.task_id is not null then 'lease' end,
        case when o.task_id is not null then 'outcome' end,
        case when d.parked_run_at is not null then 'parked' end) as place,
      s.status, coalesce(r.attempt, l.attempt, o.attempt, d.parked_attempt) as attempt,
      coalesce(r.run_at, l.run_at, case when l.task_id is not null then t.run_at end,
        d.parked_run_at) as run_at,
      d.task_id is not null as deleted,
      coalesce(l.token, o.token) as token, l.worker_id, l.lease_until, l.started_at
    from queues.task t
    join queues.task_status s on s.task_id = t.task_id
    left join queues.ready r on r.task_id = t.task_id
    left join queues.lease l on l.task_id = t.task_id
    left join queues.outcome o on o.task_id = t.task_id
    left join queues.deletion d on d.task_id = t.task_id"""


@dataclass
class Twin:
    now: datetime
    tasks: dict[UUID, Task] = field(default_factory=dict)
    keys: dict[tuple[str, str], UUID] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    limits: dict[tuple[str, str], Limit] = field(default_factory=dict)
    last_token: int = 0
    heard: set[tuple[UUID, int]] = field(default_factory=set)
    released: set[tuple[UUID, int]] = field(default_factory=set)
    cancelled: set[tuple[UUID, int]] = field(default_factory=set)

    def pictures(self) -> dict[UUID, Row]:
        return {task_id: task.picture(self.now) for task_id, task in self.tasks.items()}

    # Enqueue

    def expect_enqueued(self, specs: Sequence[Spec]) -> list[UUID | int]:
        """Of each element the task that already holds its key, or the place of the element that gets it."""
        holders: dict[tuple[str, str], tuple[UUID | int, Spec]] = {
            key: (task_id, self.tasks[task_id].spec) for key, task_id in self.keys.items()
        }
        expected: list[UUID | int] = []
        for place, spec in enumerate(specs):
            if spec.key is None:
                expected.append(place)
                continue
            holder, asked = holders.setdefault(spec.key, (place, spec))
            if asked.payload != spec.payload:
                raise Refused("QF409")
            expected.append(holder)
        return expected

    def enqueue(self, task_id: UUID, spec: Spec) -> None:
        assert task_id not in self.tasks
        self.tasks[task_id] = Task(task_id, spec, spec.run_at or self.now)
        if spec.key:
            self.keys[spec.key] = task_id

    # Claim and sweep

    def due(self, queues: list[str] | None, prefixes: list[str] | None) -> list[Task]:
        """What a worker may claim, in the order in which it gets it."""
        if queues is None and prefixes is None:
            queues = ["default"]
        found = [
            task
            for task in self.tasks.values()
            if task.place == "ready"
            and task.run_at <= self.now
            and task.spec.routed_to not in self.paused
            and (task.spec.routed_to in (queues or []) or task.spec.type.startswith(tuple(prefixes or [])))
        ]
        return sorted(found, key=lambda task: task.order)

    def picked(self, due: Sequence[Task], seen: Sequence[Task], max_tasks: int) -> list[Task]:
        """What a claim takes of what is due. Of what has no limit it sees that which is past its cursor."""
        taken: list[Task] = []
        for priority in sorted({task.spec.priority for task in due}, reverse=True):
            free = [task for task in seen if task.spec.priority == priority and not self.gates(task.spec)]
            limited = [task for task in due if task.spec.priority == priority and self.gates(task.spec)]
            here = sorted([*free, *limited], key=lambda task: task.order)
            within = self._within_limits(here, taken)[: max_tasks - len(taken)]
            taken += sorted(within, key=lambda task: task.order)
        return taken

    def gates(self, spec: Spec) -> dict[Gate, tuple[int | None, float | None]]:
        """How many may run behind each gate at once, and how many may start now."""
        found: dict[Gate, tuple[int | None, float | None]] = {}
        per_key = False
        for subject, name in (("queue", spec.routed_to), ("type", spec.type)):
            if limit := self.limits.get((subject, name)):
                tokens = limit.tokens_at(self.now) // 1 if limit.rate is not None else None
                if limit.max_running is not None or limit.rate is not None:
                    found[Gate(subject, name)] = limit.max_running, tokens
                if limit.per_key is not None and spec.concurrency_key:
                    found[Gate(subject, name, spec.concurrency_key)] = limit.per_key, None
                per_key = per_key or limit.per_key is not None
        if spec.concurrency_key and not per_key:
            found[Gate("type", spec.type, spec.concurrency_key)] = 1, None
        return found

    def running(self, gate: Gate) -> int:
        return sum(task.lease is not None and gate.counts(task.spec) for task in self.tasks.values())

    def _within_limits(self, here: Sequence[Task], before: Sequence[Task]) -> list[Task]:
        """Those whose key runs less come first; what the claim took before counts."""
        room: dict[Gate, float] = {}
        order = []
        places: dict[Lane, int] = {}
        for task in here:
            shares = [0]
            for gate, (most, tokens) in self.gates(task.spec).items():
                running = self.running(gate)
                bounds = [most - running if most is not None else None, tokens]
                taken = sum(gate.counts(other.spec) for other in before)
                room[gate] = (
                    min([bound for bound in bounds if bound is not None], default=float("inf")) - taken
                )
                shares += [running] if gate.key else []
            places[task.lane] = places.get(task.lane, 0) + 1
            rank = max(shares) + places[task.lane] if task.spec.concurrency_key else 1
            order.append((rank, task.run_at, task.task_id, task))
        found = []
        for *_, task in sorted(order, key=lambda each: each[:3]):
            gates = self.gates(task.spec)
            if all(room[gate] > 0 for gate in gates):
                found.append(task)
                for gate in gates:
                    room[gate] -= 1
        return found

    def charge(self, tasks: Sequence[Task]) -> None:
        """Take what starts off the rates that it starts under."""
        for (subject, name), limit in self.limits.items():
            started = sum(Gate(subject, name).counts(task.spec) for task in tasks)
            if limit.rate is not None and started:
                limit.tokens, limit.counted_at = limit.tokens_at(self.now) - started, self.now

    def set_limit(self, subject: str, name: str, given: dict[str, Any]) -> None:
        former, rate = self.limits.get((subject, name)), given.get("rate")
        tokens = float(rate or 0)
        if rate is not None and former and former.rate is not None:
            tokens = min(tokens, former.tokens_at(self.now))
        bounds = given.get("max_running"), given.get("per_key"), rate, given.get("per")
        self.limits[subject, name] = Limit(*bounds, tokens=tokens, counted_at=self.now)

    def limit_status(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        return {
            (subject, name): (
                self.running(Gate(subject, name)),
                None if limit.rate is None else int(limit.tokens_at(self.now) // 1),
            )
            for (subject, name), limit in self.limits.items()
        }

    def claim(self, task: Task, token: int, worker_id: str, lease: timedelta | None) -> Lease:
        length = task.spec.lease or lease or DEFAULT_LEASE
        ticket = Ticket(task.task_id, token, worker_id)
        task.place, task.attempt = "lease", task.attempt + 1
        task.lease = Lease(ticket, self.now, self.now + length, length)
        return task.lease

    def expired(self) -> list[Task]:
        found = [task for task in self.tasks.values() if task.lease and task.lease.lease_until < self.now]
        return sorted(found, key=lambda task: task.lease.lease_until if task.lease else self.now)

    def sweep(self, task: Task) -> None:
        used = self.attempts_used(task)
        if used >= task.spec.max_attempts:
            self._end(task, "dead_letter", None)
        else:
            self._put_back(task, self.now, used)

    def attempts_used(self, task: Task) -> int:
        """How many a failure of the attempt that is under way leaves used."""
        return task.attempt

    # What workers report

    def heartbeat(self, ticket: Ticket, started_at: datetime | None) -> str:
        task = self.tasks[ticket.task_id]
        if not task.is_held_by(ticket):
            ended = task.outcome == "cancelled" and task.ended_by == ticket.token
            return "cancelled" if ended else "lost"
        assert task.lease
        task.lease.lease_until = self.now + task.lease.length
        if started_at and not task.lease.started_at:
            task.lease.started_at = max(task.lease.claimed_at, min(started_at, self.now))
        return "deleted" if task.deleted else "held"

    def finish(self, ticket: Ticket, status: str, run_at: datetime | None) -> str:
        task, trace = self.tasks[ticket.task_id], (ticket.task_id, ticket.token)
        if not task.is_held_by(ticket):
            if trace in self.cancelled:
                return "cancelled"
            return "already_done" if trace in self.heard else "lost"
        self.heard.add(trace)
        again = max(run_at or self.now, self.now)
        if status == "snooze":
            self._put_back(task, again, task.attempt - 1)
        elif status == "retry" and (used := self.attempts_used(task)) < task.spec.max_attempts:
            self._put_back(task, again, used)
        else:
            self._end(task, "dead_letter" if status == "retry" else status, ticket.token)
        return "accepted"

    def release(self, ticket: Ticket) -> str:
        task, trace = self.tasks[ticket.task_id], (ticket.task_id, ticket.token)
        if not task.is_held_by(ticket):
            if trace in self.released:
                return "already_done"
            ended = task.outcome == "cancelled" and task.ended_by == ticket.token
            return "cancelled" if ended else "lost"
        self.released.add(trace)
        self._put_back(task, task.run_at, task.attempt - 1)
        return "released"

    # What people do

    def cancel(self, task: Task) -> str:
        if task.outcome:
            return task.outcome
        token = task.lease.ticket.token if task.lease else None
        if token:
            self.cancelled.add((task.task_id, token))
        self._end(task, "cancelled", token)
        return "cancelled"

    def retry(self, task: Task) -> str:
        if task.deleted or task.outcome not in RETRIABLE:
            raise Refused("QF412")
        task.outcome = task.ended_by = None
        task.place, task.attempt, task.run_at = "ready", 0, self.now
        return "pending"

    def delete(self, task: Task) -> str:
        if not task.deleted:
            task.deleted = True
            if task.place == "ready":
                task.place = "parked"
            if task.spec.key:
                del self.keys[task.spec.key]
        return "deleted"

    def restore(self, task: Task) -> str:
        if task.deleted:
            if task.spec.key:
                if task.spec.key in self.keys:
                    raise Refused("QF409")
                self.keys[task.spec.key] = task.task_id
            task.deleted = False
            if task.place == "parked":
                task.place = "ready"
        return task.status(self.now)

    def reschedule(self, task: Task, run_at: datetime) -> str:
        if task.place == "ready":
            task.run_at = run_at
        return task.status(self.now)

    def pause(self, queue: str) -> bool:
        news = queue not in self.paused
        self.paused.add(queue)
        return news

    def resume(self, queue: str) -> bool:
        news = queue in self.paused
        self.paused.discard(queue)
        return news

    def _end(self, task: Task, status: str, token: int | None) -> None:
        task.place, task.outcome, task.ended_by, task.lease = "outcome", status, token, None

    def _put_back(self, task: Task, run_at: datetime, attempt: int) -> None:
        task.place = "parked" if task.deleted else "ready"
        task.run_at, task.attempt, task.lease = run_at, attempt, None


def by_id(tasks: Iterable[Task]) -> list[UUID]:
    return [task.task_id for task in tasks]


def past(task: Task, cursor: dict[str, Any], lanes: dict[Lane, int]) -> bool:
    """Whether a claim that starts from this cursor sees the task."""
    place = cursor.get(str(lanes.get(task.lane)))
    return place is None or (task.run_at, task.task_id) > (place["run_at"], place["task_id"])
