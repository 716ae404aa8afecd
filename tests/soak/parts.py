"""What runs beside the tasks: e-mail, events, a schedule and the dashboard. Each checks what came of it."""

import os
import re
import subprocess
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID

import psycopg

from acceptance.fleet import HOLDFAST
from acceptance.ground import Ground
from acceptance.outbox import Ear, Told
from acceptance.trial import chance
from acceptance.waiting import wait_for
from holdfast._engine import Engine
from holdfast._engine.enqueue import NewTask
from holdfast._engine.events import emit
from holdfast._engine.schedules import NewSchedule, declare_schedules
from support.comms import Channel, broken_sends
from support.engine import Connection, rows
from support.mail_server import MailServer

EMAIL = Channel("email")
AGGREGATES = 20


class Mail:
    """Messages to a real SMTP server. A send whose outcome is unknown stops, so none arrives twice."""

    def __init__(self, server: MailServer) -> None:
        self.sent = 0
        self._server = server

    def settings(self) -> dict[str, object]:
        return {
            "HOLDFAST_EMAIL_PROVIDER": "smtp",
            "HOLDFAST_EMAIL_SENDER": "shop@example.com",
            "HOLDFAST_SMTP_HOST": "127.0.0.1",
            "HOLDFAST_SMTP_PORT": self._server.port,
            "HOLDFAST_SMTP_SECURITY": "none",
        }

    def prepare(self, conn: Connection) -> None:
        conn.execute("update comms.send_cap set most = 1000000000")  # all go to the same person

    def tick(self, conn: Connection) -> None:
        self.sent += 1
        message = EMAIL.create(conn, text_body=f"message {self.sent}")
        EMAIL.kick_off(conn, message_id=message, max_attempts=4, when_unknown="stop")

    def broken(self, conn: Connection) -> list[str]:
        broken = [f"{rule}: {found}" for rule, found in broken_sends(conn, EMAIL).items()]
        arrived = Counter(message.get_content().strip() for message in self._server.delivered)
        broken += [f"{text} arrived {times} times" for text, times in arrived.items() if times > 1]
        sent = rows(
            conn,
            """select m.text_body from comms.send_email_task_succeeded
               join comms.send_email_task using (send_email_task_id)
               join comms.email_message m using (message_id) where m.text_body is not null""",
        )
        return broken + [
            f"{row['text_body']} never arrived" for row in sent if row["text_body"] not in arrived
        ]

    @property
    def arrived(self) -> int:
        return len(self._server.delivered)


class Events:
    """Each belongs to a change of a row. Some transactions are rolled back; of some, it stays unknown."""

    def __init__(self, ear: Ear) -> None:
        self.committed: dict[UUID, Told] = {}
        self._unknown: set[UUID] = set()
        self._rolled_back: set[UUID] = set()
        self._ear = ear
        self._chance: Random = chance("events")

    def prepare(self, conn: Connection) -> None:
        conn.execute("create table account (name text primary key, changes integer not null)")
        conn.execute("insert into account select 'a' || n, 0 from generate_series(1, %s) n", [AGGREGATES])

    def tick(self, conn: Connection) -> None:
        name = f"a{self._chance.randint(1, AGGREGATES)}"
        undone = self._chance.random() < 0.1
        event_id = None
        try:
            with conn.transaction(force_rollback=undone):
                change = "update account set changes = changes + 1 where name = %s returning changes"
                row = conn.execute(change, [name]).fetchone()
                assert row
                event_id = Engine(conn).run(emit("account.changed", {"n": row[0]}, name))
        except psycopg.Error:
            if event_id is not None:
                self._unknown.add(event_id)
            raise
        if undone:
            self._rolled_back.add(event_id)
        else:
            self.committed[event_id] = (name, row[0])

    def wait_until_delivered(self, conn: Connection) -> None:
        left = "select 1 from queues.delivery limit 1"
        wait_for("all events to be delivered", lambda: not rows(conn, left), 300)

    def broken(self) -> list[str]:
        taken = self._ear.taken()
        heard = [event_id for event_id, _, _ in self._ear.heard]
        broken = [f"event {one} never arrived" for one in self.committed.keys() - taken]
        broken += [
            f"event {one} was rolled back and arrived" for one in self._rolled_back.intersection(heard)
        ]
        broken += [f"event {one} is unknown" for one in taken - self.committed.keys() - self._unknown]
        numbers: dict[str, list[int]] = defaultdict(list)
        first: dict[UUID, Told] = {}
        for event_id, told, _ in self._ear.heard:
            if event_id not in first:
                first[event_id] = told
                numbers[told[0]].append(told[1])
        return broken + [
            f"{name} came out of order" for name, found in numbers.items() if found != sorted(set(found))
        ]

    @property
    def arrivals(self) -> int:
        return len(self._ear.heard)


class Ticks:
    """A schedule that fires every second: one task per nominal time."""

    def __init__(self) -> None:
        self.fired = 0

    def prepare(self, conn: Connection) -> None:
        task = NewTask("acceptance.work", {"label": "tick", "seconds": [0]}, max_attempts=50)
        schedule = NewSchedule(name="tick", task=task, every=timedelta(seconds=1))
        Engine(conn).run(declare_schedules("soak", [schedule]))

    def broken(self, conn: Connection, since: str) -> list[str]:
        found = rows(
            conn,
            """select t.metadata ->> 'nominal_at' as at, o.status from queues.task t
               join queues.outcome o on o.task_id = t.task_id
               where t.metadata ->> 'schedule' = 'tick' and t.created_at >= %s""",
            [since],
        )
        self.fired += len(found)
        twice = [at for at, times in Counter(row["at"] for row in found).items() if times > 1]
        wrong = [row for row in found if row["status"] != "succeeded"]
        return [f"{at} has two tasks" for at in twice] + [f"{row['at']} is {row['status']}" for row in wrong]


class Dashboard:
    """`holdfast serve`, whose pages and metrics are read all the time."""

    PAGES = ("/metrics", "/", "/tasks", "/workers")

    def __init__(self, url: str, log: Path) -> None:
        self.read = 0
        self.errors = 0
        self._log = log
        command = [str(HOLDFAST), "serve", "--no-login", "--port", "0", "--log-format", "json"]
        with log.open("wb") as output:
            environment = os.environ | {"DATABASE_URL": url}
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        self._address = wait_for("the dashboard", self._find_address)

    def tick(self) -> None:
        for page in self.PAGES:
            try:
                with urllib.request.urlopen(self._address + page, timeout=10) as answer:  # noqa: S310 - ours
                    answer.read()
                self.read += 1
            except OSError:
                self.errors += 1

    def _find_address(self) -> str:
        assert self.process.poll() is None, self._log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", self._log.read_text())
        return found[0] if found else ""


@contextmanager
def dashboard(ground: Ground, directory: Path) -> Iterator[Dashboard]:
    served = Dashboard(ground.database.dsn, directory / "serve.log")
    try:
        yield served
    finally:
        served.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            served.process.wait(30)
        served.process.kill()
        served.process.wait()
