"""Rounds of work and faults. After each, everything is checked, and the clock moves on: all of it is old."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep

import psycopg

from acceptance import mixed, mixed_rules
from acceptance.fleet import WorkerProcess
from acceptance.ground import VERSION, Ground, durable_ground
from acceptance.mixed import Case, Mixed
from acceptance.outbox import Dispatchers, Ear
from acceptance.record import commit, machine, versions
from acceptance.trial import SEED
from acceptance.waiting import wait_for
from acceptance.witness import Line
from holdfast._install.schema import install_test_clock
from soak.drift import LOAD, Samples, compare, database_figures, latencies, process_figures
from soak.parts import Dashboard, Events, Mail, Ticks, dashboard
from soak.report import Report
from support import engine
from support.engine import Connection
from support.invariant import assert_invariant
from support.mail_server import MailServer
from support.mail_server import running as running_mail_server
from support.outbox import subscribe

ROUND_SECONDS = (10.0, 60.0)
LONG = timedelta(days=91)
"""Longer than any policy keeps anything: what one round leaves is deleted in the next."""
PAUSES = {"plain": 0.05, "flow": 1.0, "batch": 1.0, "bulk": 0.5, "debounced": 1.0, "keyed": 0.4}
"""Between cases of each kind, in seconds: about 150 tasks a second in all."""
MAX_WAITING = 1000
CRASH_EVERY = 5
"""After this many rounds the server stops at once. After a crash it does not know what to vacuum."""
SERVER = {"autovacuum_naptime": "5s"}
"""A server that restarts every minute would otherwise not begin to vacuum."""
WORKERS: dict[str, object] = {
    "WORKER_QUEUES": "acceptance,comms",
    "WORKER_CONCURRENCY": 20,
    "HOLDFAST_LEASE": 5,
    "HOLDFAST_HEARTBEAT": 1,
    "HOLDFAST_LOG_LEVEL": "info",
}


@dataclass
class Scene:
    """All that runs."""

    ground: Ground
    load: Mixed
    mail: Mail
    events: Events
    ticks: Ticks
    dashboard: Dashboard
    steady: WorkerProcess
    victim: WorkerProcess
    dispatchers: Dispatchers
    mortal_dispatchers: Dispatchers
    temporary: Path

    def processes(self) -> dict[str, int]:
        """Those that run from the beginning to the end. The server starts again in each round."""
        server = self.ground.server.status().pid
        found = {
            "the worker": self.steady.pid,
            "the dispatcher": self.dispatchers.pids[0],
            "the dashboard": self.dashboard.process.pid,
        }
        return found | ({"PostgreSQL": server} if server else {})

    def settings(self) -> dict[str, object]:
        return WORKERS | self.mail.settings() | {"TMPDIR": str(self.temporary)}


class Soak:
    """One run."""

    def __init__(
        self,
        directory: Path,
        hours: float,
        say: Callable[[str], None],
        keep: Callable[[Report], None] = lambda _: None,
    ) -> None:
        """After each round, the report as it is then is kept."""
        self._directory = directory
        self._keep = keep
        self._seconds = hours * 3600
        self._hours = hours
        self._say = say
        self._samples: Samples = {}
        self._counts: Counter[str] = Counter()
        self._broken: list[str] = []
        self._killed: dict[int, float] = {}
        self._crashes: list[tuple[float, float]] = []
        self._conn: Connection | None = None
        self._said = 0.0

    def run(self) -> Report:
        report = Report(
            at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            hours=self._hours,
            seed=SEED,
            commit=commit(),
            versions=versions(),
            machine=machine(),
        )
        with self._scene() as scene:
            began = monotonic()
            low, high = ROUND_SECONDS
            length = max(low, min(high, self._seconds / 8))
            while monotonic() - began < self._seconds and not report.ended_early:
                try:
                    self._round(scene, length, began)
                except Exception as error:  # noqa: BLE001 - what was measured until then is not lost
                    report.ended_early = f"round {self._counts['rounds']}: {error!r}"
                self._count(scene)
                report.minutes = (monotonic() - began) / 60
                report.counts, report.broken = dict(self._counts), self._broken
                report.drift = compare(self._samples, began, monotonic())
                self._keep(report)
        return report

    @contextmanager
    def _scene(self) -> Iterator[Scene]:
        temporary = self._directory / "tmp"
        temporary.mkdir()
        with ExitStack() as stack:
            ground = stack.enter_context(durable_ground(self._directory, VERSION, settings=SERVER))
            mail = Mail(stack.enter_context(running_mail_server(MailServer())))
            ear = stack.enter_context(Ear(fails=0.05).listening())
            install_test_clock(ground.database.dsn)
            events, ticks = Events(ear), Ticks()
            for part in (mail, events, ticks):
                part.prepare(ground.conn)
            mixed.prepare(ground.conn)
            subscribe(ground.conn, "ear", "account.changed", sink="http", target=ear.url, max_attempts=1000)
            url = ground.database.dsn_as("holdfast_dispatcher")
            kept, mortal = [Dispatchers(url, self._place(name), 5.0) for name in ("kept", "mortal")]
            for dispatchers in (kept, mortal):
                stack.callback(dispatchers.close)
                dispatchers.launch()
            settings = WORKERS | mail.settings() | {"TMPDIR": str(temporary)}
            steady, victim = ground.fleet.start(2, settings)
            served = stack.enter_context(dashboard(ground, self._directory))
            load = Mixed(ground.database.dsn_as("holdfast_client"), PAUSES)
            yield Scene(ground, load, mail, events, ticks, served, steady, victim, kept, mortal, temporary)

    def _place(self, name: str) -> Path:
        place = self._directory / name
        place.mkdir()
        return place

    def _round(self, scene: Scene, length: float, began: float) -> None:
        """Faults are spread over the round; then all work ends, is checked, and becomes old."""
        self._counts["rounds"] += 1
        since = engine.value(scene.ground.conn, "select queues.clock()::text")
        self._killed, self._crashes = {}, []
        faults = [self._kill_worker, self._kill_dispatcher, self._restart_server, self._restart_worker]
        start = monotonic()
        with scene.load.working():
            for number in range(1, 10):
                while monotonic() < start + length * number / 10:
                    self._tick(scene)
                    self._progress(began)
                if number % 2 == 0:
                    faults[number // 2 - 1](scene)
            scene.load.held_back = True
        self._check(scene, since)
        scene.load.held_back = False
        scene.ground.conn.execute("update queues.test_clock set shifted_by = shifted_by + %s", [LONG])
        scene.ground.database.close()
        self._conn = None

    def _tick(self, scene: Scene) -> None:
        """Once or twice a second: a message, an event, the dashboard, and all figures."""
        sleep(0.5)
        try:
            conn = self._conn = self._conn or scene.ground.conn
            scene.mail.tick(conn)
            scene.events.tick(conn)
            scene.load.held_back = engine.value(conn, "select count(*) from queues.ready") > MAX_WAITING
            self._sample(scene, conn)
        except psycopg.Error:
            self._counts["calls that failed"] += 1
            self._conn = None
        scene.dashboard.tick()

    def _sample(self, scene: Scene, conn: Connection) -> None:
        figures = database_figures(conn)
        for name, pid in scene.processes().items():
            figures |= process_figures(name, pid)
        figures[f"{LOAD} []"] = os.getloadavg()[0]
        figures["temporary files []"] = float(sum(len(files) for _, _, files in os.walk(scene.temporary)))
        for name, value in figures.items():
            self._samples.setdefault(name, []).append((monotonic(), value))

    def _kill_worker(self, scene: Scene) -> None:
        scene.victim.kill()
        self._killed[scene.victim.pid] = scene.victim.killed_at or 0.0
        self._counts["workers killed"] += 1
        scene.victim = scene.ground.fleet.launch(scene.settings())

    def _restart_worker(self, scene: Scene) -> None:
        """As a deployment does: it finishes what it runs."""
        wait_for("the other worker to start", lambda: scene.victim.ready)
        leaving, scene.victim = scene.victim, scene.ground.fleet.launch(scene.settings())
        leaving.ask_to_stop()
        self._counts["workers restarted"] += 1

    def _kill_dispatcher(self, scene: Scene) -> None:
        scene.mortal_dispatchers.kill_the_older()
        scene.mortal_dispatchers.launch()
        self._counts["dispatchers killed"] += 1

    def _restart_server(self, scene: Scene) -> None:
        crash = self._counts["rounds"] % CRASH_EVERY == 0
        at = monotonic()
        scene.ground.server.stop("immediate" if crash else "fast")
        scene.ground.server.start()
        if crash:
            self._crashes.append((at, monotonic()))
        self._conn = None
        self._counts["crashes of the server" if crash else "restarts of the server"] += 1

    def _check(self, scene: Scene, since: str) -> None:
        scene.ground.quiesce(300)
        conn = scene.ground.conn
        scene.events.wait_until_delivered(conn)
        cases, lines = scene.load.take_cases(), scene.ground.witness.lines()
        self._measure(cases, lines)
        broken, _ = mixed_rules.check_limits(lines, self._killed, self._crashes)
        broken += mixed_rules.check(conn, cases, lines)
        broken += scene.ticks.broken(conn, since)
        broken += scene.mail.broken(conn)
        broken += scene.events.broken()
        assert_invariant(conn)
        self._broken += broken
        for one in broken[:5]:
            self._say(f"BROKEN in round {self._counts['rounds']}: {one}")
        assert scene.steady.running, scene.steady.last_words()
        self._counts["tasks"] += len({line.task_id for line in lines}) + 10 * _count(cases, "bulk")
        self._counts["runs with signals and joins"] += _count(cases, "flow")
        conn.execute("truncate ledger")
        os.truncate(scene.ground.witness.path, 0)

    def _measure(self, cases: list[Case], lines: list[Line]) -> None:
        """From the acknowledgement of a batch to the start of each of its tasks, in milliseconds."""
        asked = {task_id: case.asked_at for case in cases if case.kind == "plain" for task_id in case.tasks}
        started: dict[object, float] = {}
        for line in lines:
            if line.phase == "started" and line.task_id in asked:
                started.setdefault(line.task_id, line.at)
        measured = [(at, max(0.0, at - asked[key]) * 1000) for key, at in started.items()]  # type: ignore[index]
        for name, value in latencies(measured):
            self._samples.setdefault(name, []).append((monotonic(), value))

    def _count(self, scene: Scene) -> None:
        self._counts["messages sent"] = scene.mail.sent
        self._counts["messages arrived"] = scene.mail.arrived
        self._counts["events committed"] = len(scene.events.committed)
        self._counts["events arrived"] = scene.events.arrivals
        self._counts["scheduled tasks"] = scene.ticks.fired
        self._counts["pages read"] = scene.dashboard.read
        self._counts["calls of clients repeated"] = scene.load.repeated

    def _progress(self, began: float) -> None:
        now = monotonic()
        if now - max(self._said, began) < 60:
            return
        self._said = now
        latest = {name: taken[-1][1] for name, taken in self._samples.items()}
        shown = (
            "tasks kept [rows]",
            "all tables [MB]",
            "memory of the worker [MB]",
            "latency 99 % [ms]",
            "connections []",
        )
        told = ", ".join(f"{name.partition(' [')[0]} {latest.get(name, 0):.0f}" for name in shown)
        tasks = self._counts["tasks"]
        self._say(f"{(now - began) / 60:.0f} min, round {self._counts['rounds']}: {tasks} tasks, {told}")


def _count(cases: list[Case], kind: str) -> int:
    return sum(case.kind == kind for case in cases)
