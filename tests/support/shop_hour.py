"""An hour of a shop in the database: for pictures of the pages, and for what a person finds on them.

The clock of the database stands still while the hour is made, and then goes on. Tasks of the hour are claimed
and finished as a worker does it; only the order of the workflow is run by a worker.
"""

import asyncio
import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from holdfast import App, Context, Linear
from holdfast._engine import (
    Engine,
    activity,
    enqueue,
    health,
    leases,
    limits,
    schedules,
    workers,
)
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import Decision, NewSchedule
from holdfast._worker.activity import Counted
from holdfast._worker.recurrence import recurrence_of
from support.clock import Clock
from support.leases import ended, holding
from support.worker_thread import working

MINUTES = 60
DEPLOYED = 40
"""The minute from which on the workers of the new version run, and cards are declined."""
DECLINED = 109
WORKERS = ("w1", "w2", "w3")
QUEUES = ("billing", "mail", "media", "reports", "search", "shop")


class Kind(NamedTuple):
    """A type of tasks of the shop: how many there are in a minute, and how long one takes."""

    type: str
    per_minute: int
    seconds: float
    argument: str
    fails_every: int = 0

    @property
    def queue(self) -> str:
        return self.type.partition(".")[0]


KINDS = (
    Kind("mail.send", 14, 0.21, "message", 23),
    Kind("search.index", 22, 0.03, "product"),
    Kind("media.resize", 6, 2.4, "image"),
    Kind("billing.charge", 7, 0.8, "order"),
    Kind("shop.confirm", 9, 0.09, "order"),
)


@dataclass
class ShopHour:
    """Fills a database that has a clock for tests."""

    connection: psycopg.Connection[Any]
    declined: int = 0
    number: int = 1000

    def __post_init__(self) -> None:
        self.engine = Engine(self.connection)
        self.clock = Clock(self.connection, self.engine.run(health.clock()) - timedelta(minutes=MINUTES))

    def fill(self) -> None:
        self._declare()
        began = self.clock.now
        self._start_workers("1.4.1")
        for minute in range(MINUTES):
            self.clock.set(began + timedelta(minutes=minute))
            if minute == DEPLOYED:
                self._start_workers("1.5.0")
            self._pass_minute(minute)
        self.clock.set(began + timedelta(minutes=MINUTES, seconds=-8))
        self._leave_something_open()
        self.connection.execute("update queues.test_clock set stands_at = null")
        self.engine.run(activity.take_sample())

    def _declare(self) -> None:
        self.engine.run(workers.register_types([{"type": kind.type, "queue": kind.queue} for kind in KINDS]))
        for name, type_, cron in (
            ("nightly-report", "reports.nightly", "0 2 * * *"),
            ("weekly-invoices", "billing.invoices", "30 6 * * mon"),
            ("rebuild-search-index", "search.rebuild", "15 */4 * * *"),
        ):
            task = NewTask(type_, {"format": "pdf"} if "report" in name else {})
            nightly = NewSchedule(name=name, task=task, cron=cron, tz="Europe/Berlin")
            self.engine.run(schedules.add_schedule(nightly))
        for due in self.engine.run(schedules.due_schedules()):  # as the leader plans them
            planned = recurrence_of(due.cron, due.tz, due.every, due.anchor)
            end = self.clock.now + timedelta(minutes=MINUTES)
            self.engine.run(schedules.decide_schedules([Decision(due, (), planned.after(end))]))

    def _start_workers(self, version: str) -> None:
        for name in WORKERS:
            self.engine.run(workers.retire_worker(name))
            self.engine.run(
                workers.register_worker(
                    name,
                    f"shop-{name[-1]}",
                    pid=40 + int(name[-1]),
                    version=version,
                    queues=QUEUES,
                    concurrency=200,
                    timeout=timedelta(hours=12),
                    heartbeat=timedelta(hours=4),
                )
            )
        self.engine.run(workers.lead(WORKERS[0], timedelta(hours=1)))

    def _pass_minute(self, minute: int) -> None:
        busy = 25 <= minute < 33
        wave = 1 + 0.4 * math.sin(minute / 7) + 0.08 * math.sin(minute * 2.4) + (0.8 if busy else 0)
        for half in range(2):
            begun = self.clock.now
            wanted = {kind: max(1, round(kind.per_minute * wave / 2)) for kind in KINDS}
            tasks = [self._task(kind) for kind, count in wanted.items() for _ in range(count)]
            self.engine.run(enqueue.enqueue_many(tasks))
            self._sample()
            delay = 0.1 * wave + (2.1 if busy else 0)
            self.clock.advance(delay)
            self.engine.run(
                activity.record_activity([self._work(kind, minute, half, delay) for kind in KINDS])
            )
            self.clock.set(begun + timedelta(seconds=30))

    def _sample(self) -> None:
        self.connection.execute("select pg_stat_force_next_flush()")
        self.engine.run(activity.take_sample())

    def _task(self, kind: Kind) -> NewTask:
        self.number += 1
        attempts = 1 if kind.type == "billing.charge" else 5
        return NewTask(kind.type, {kind.argument: self.number}, max_attempts=attempts)

    def _work(self, kind: Kind, minute: int, half: int, delay: float) -> str:
        worker = WORKERS[(minute + half) % len(WORKERS)]
        claimed = self.engine.run(leases.claim(worker, 200, queues=[kind.queue]))
        began = self.clock.now
        self.clock.advance(kind.seconds)
        left = 2 * (MINUTES - minute) - half
        declined = math.ceil((DECLINED - self.declined) / left) if minute >= DEPLOYED else 0
        errors = [self._error(kind, minute, n, task.attempt, declined) for n, task in enumerate(claimed)]
        results = [self._result(task, error, began) for task, error in zip(claimed, errors, strict=True)]
        if results:
            self.engine.run(leases.finish(worker, results))
        failed = sum(error is not None for error in errors)
        dead = failed if kind.type == "billing.charge" else 0
        endings = (len(claimed) - failed, dead, 0, failed - dead)
        seconds = kind.seconds * (1 + 0.3 * math.sin(minute / 3))
        counted = Counted(endings, seconds * len(claimed), delay * len(claimed))
        return counted.report(Counted(), kind.queue, kind.type)

    def _error(self, kind: Kind, minute: int, n: int, attempt: int, declined: int) -> dict[str, Any] | None:
        if kind.type == "billing.charge" and n < declined:
            self.declined += 1
            message = f"card {4000 + self.number + n} of order {self.number - n} was declined"
            return {"kind": "handler_error", "exception": "shop.bank.Declined", "message": message}
        if kind.fails_every and attempt == 1 and (n + minute) % kind.fails_every == 0:
            message = f"no answer from 10.0.0.{n + 7} within 5 s"
            return {"kind": "handler_error", "exception": "TimeoutError", "message": message}
        return None

    def _result(self, task: leases.Claimed, error: Any, began: datetime) -> str:
        if error is not None:
            return ended(task.task_id, task.token, "retry", error=error, run_at=self.clock.after(45))
        done = json.dumps({"ok": True})
        return leases.result_json(
            task.task_id, task.token, "succeeded", result=done, started_at=began.isoformat()
        )

    def _leave_something_open(self) -> None:
        self.engine.run(limits.set_limit("type", "media.resize", max_running=4, reason="the disk is slow"))
        tasks = [self._task(kind) for kind in KINDS for _ in range(4)]
        tasks += [NewTask("mail.newsletter", {"issue": 12}, delay=timedelta(hours=3)) for _ in range(5)]
        self.engine.run(enqueue.enqueue_many(tasks))
        for task in self.engine.run(leases.claim("w3", 3, queues=["media"], lease=timedelta(hours=1))):
            progress = {"done": 7, "total": 12, "note": "drawing thumbnails"}
            self.engine.run(
                leases.heartbeat("w3", [holding(task.task_id, task.token, self.clock.now, progress)])
            )


def run_order(url: str, key: str = "order-7") -> None:
    """A workflow that a worker runs until it waits for its approval."""
    app = App(url)
    tries: list[int] = []

    async def reserve(order: int) -> str:
        await asyncio.sleep(0.12)
        return f"reservation {order}"

    async def charge(order: int) -> str:
        tries.append(order)
        await asyncio.sleep(0.2)
        if len(tries) < 3:
            raise TimeoutError("the bank does not answer")
        return f"receipt {order}"

    @app.task("orders.pack")
    async def pack(item: int) -> int:
        await asyncio.sleep(0.1 * item)
        return item

    @app.task("orders.fulfil")
    async def fulfil(ctx: Context, order: int) -> bool:
        await ctx.step(reserve, order)
        await ctx.step(charge, order, retries=5, retry=Linear(step=0.1))
        await ctx.map(pack, [1, 2, 3])
        approved: bool = await ctx.wait("approval", bool)
        return approved

    try:
        with (
            working(app, url, worker_queues="orders", worker_id="w4", log_level="warning"),
            psycopg.connect(url, autocommit=True) as connection,
        ):
            order = NewTask("orders.fulfil", {"order": 7}, idempotency_key=key)
            task_id = Engine(connection).run(enqueue.enqueue(order))
            waits = "select from queues.wait_status where task_id = %s and signal = 'approval'"
            while connection.execute(waits, [task_id]).fetchone() is None:
                connection.execute("select pg_sleep(0.02)")
    finally:
        app.close()
