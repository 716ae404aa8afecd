"""Leading the fleet. It is asked for on the heartbeat's connection and acted on in a thread of its own.

So a duty that takes long keeps neither the leases nor the next term waiting, and a worker that does not lead
needs no connection for it.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast.connections.session import configure_session, hang_up, with_defaults
from holdfast.engine import Engine, Statement, workers
from holdfast.errors import DatabaseUnavailable, HoldfastError, TryAgain, translate
from holdfast.logs import Log

T = TypeVar("T")

ASKS_PER_TERM = 3
MARGIN = 0.1
"""The part of a term at its end in which its leader no longer acts."""
LONGEST_PAUSE_SECONDS = 60.0
PATIENCE_SECONDS = 1.0


class Ask(Protocol):
    """Executes a statement in a transaction of its own, while the term certainly holds.

    Once it no longer does, it raises, and the duty ends there. A statement that is under way when the term
    ends is cancelled by the server.
    """

    def __call__(self, statement: Statement[T], /) -> T: ...


class Duty(Protocol):
    """Safe even if two leaders act at once. What it keeps between runs, the next leader does not have."""

    @property
    def name(self) -> str: ...

    @property
    def interval(self) -> float:
        """Seconds from one run to the next."""

    def run(self, ask: Ask) -> float | None:
        """One step that is soon over, because other duties wait for it.

        Answers in how many seconds the next one shall come; None is the interval, 0 means as soon as the
        others have had their turn.
        """


class TermEnded(Exception):
    """A duty asked for more when this worker no longer certainly leads."""


class Candidate:
    """Asks to lead, or to go on leading. From the heartbeat's thread, and never while leases wait."""

    def __init__(self, worker_id: str, term: timedelta, leader: "Leader", log: Log) -> None:
        self._worker_id = worker_id
        self._term = term
        self._leader = leader
        self._log = log
        self._next = 0.0
        self._withdrawn = False
        self._resigned = False
        self._refused = False

    @property
    def due(self) -> float:
        """When to call `stand` next."""
        if self._withdrawn:
            return float("inf") if self._resigned else 0.0
        return self._next

    def withdraw(self) -> None:
        """From any thread: lead no more. The next call of `stand` hands over, so that none can follow it."""
        self._withdrawn = True

    def stand(self, ask: Ask) -> None:
        sent = time.monotonic()
        self._next = sent + self._often() * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
        try:
            if self._withdrawn:
                self._resigned = True
                ask(workers.resign(self._worker_id))
            else:
                self._ask_to_lead(ask, sent)
        except DatabaseUnavailable:
            raise
        except TryAgain:
            self._look_again_in(self._often() / 10)
        except HoldfastError as error:
            if not self._refused:
                self._log.error("lead_refused", error=str(error))
            self._refused = True

    def _ask_to_lead(self, ask: Ask, sent: float) -> None:
        if ask(workers.lead(self._worker_id, self._term)):
            # Counted from before the question, and the database counted from after it.
            self._leader.appoint(sent + self._term.total_seconds() * (1 - MARGIN))
            return
        self._leader.dismiss()
        left = ask(workers.term_left())
        self._look_again_in(0.0 if left is None else left.total_seconds())

    def _often(self) -> float:
        return self._term.total_seconds() / ASKS_PER_TERM

    def _look_again_in(self, seconds: float) -> None:
        """No later than otherwise, and not all at the same instant."""
        spread = min(0.3, self._often()) * random.uniform(0.1, 1.0)  # noqa: S311 - spreads load
        self._next = min(self._next, time.monotonic() + seconds + spread)


class Leader(threading.Thread):
    """Does each duty when it is due, while this worker certainly leads, on a connection of its own."""

    def __init__(self, *, url: str, duties: Sequence[Duty], log: Log) -> None:
        super().__init__(name="holdfast-leader", daemon=True)
        self._url = with_defaults(url, worker=True)
        self._duties = duties
        self._log = log
        self._acts_until = 0.0
        self._leading = False
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._wake = threading.Event()
        self._closed = False

    @property
    def seconds_left(self) -> float:
        """How long this worker certainly leads, by its own steady clock."""
        return self._acts_until - time.monotonic()

    def appoint(self, until: float) -> None:
        """From any thread."""
        self._acts_until = until
        self._log.debug("term_held", seconds=round(self.seconds_left, 3))
        self._wake.set()

    def dismiss(self) -> None:
        """From any thread. Somebody else leads."""
        if self._acts_until:
            self._acts_until = 0.0
            self._wake.set()

    def close(self, then: Callable[[], None] = lambda: None) -> None:
        """Act no more; what is to be done then must not be done before."""
        self._closed = True
        self._wake.set()
        if self.is_alive():
            self.join(timeout=PATIENCE_SECONDS)
        connection = self._connection
        if self.is_alive() and connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=PATIENCE_SECONDS)
            self.join(timeout=PATIENCE_SECONDS)
            hang_up(connection)
            self.join(timeout=PATIENCE_SECONDS)
        then()

    def look_after(self) -> None:
        """By the watchdog, because this thread may be waiting for an answer that never comes."""
        if self._leading and self.seconds_left < 0 and (connection := self._connection) is not None:
            hang_up(connection)

    def run(self) -> None:
        while not self._closed:
            if self.seconds_left > 0:
                self._begin()
                self._do_what_is_due()
            if self.seconds_left <= 0:
                self._end("its term was not prolonged")
            self._wake.wait(self._seconds_until_next())
            self._wake.clear()
        self._end("the worker stops")

    def _begin(self) -> None:
        if not self._leading:
            self._leading = True
            self._due = {duty.name: 0.0 for duty in self._duties}
            self._failures.clear()
            self._log.info("leading")

    def _end(self, why: str) -> None:
        if self._leading:
            self._leading = False
            self._disconnect()
            self._log.info("leading_ended", why=why)

    def _seconds_until_next(self) -> float | None:
        if not self._leading:
            return None
        due = min(self._due.values(), default=float("inf"))
        return max(0.0, min(due, self._acts_until) - time.monotonic())

    def _do_what_is_due(self) -> None:
        """Each once, those that have waited longest first."""
        for duty in sorted(self._duties, key=lambda duty: self._due[duty.name]):
            now = time.monotonic()
            if self._due[duty.name] <= now < self._acts_until and not self._closed:
                self._due[duty.name] = time.monotonic() + self._do(duty)

    def _do(self, duty: Duty) -> float:
        """Answers in how many seconds it is due again. One that fails keeps no other from its turn."""
        try:
            pause = duty.run(self._ask)
        except TermEnded:
            return 0.0
        except Exception as error:  # noqa: BLE001 - if this thread ended, nobody would see to the fleet
            self._disconnect()
            if self.seconds_left <= 0 or self._closed:
                return 0.0
            failures = self._failures[duty.name] = self._failures.get(duty.name, 0) + 1
            self._log.error(
                "duty_failed",
                duty=duty.name,
                error=str(error).strip() or type(error).__name__,
                exc_info=None if isinstance(error, HoldfastError) else error,
            )
            return max(duty.interval, min(LONGEST_PAUSE_SECONDS, 0.1 * 2.0 ** min(failures, 10)))
        self._failures.pop(duty.name, None)
        return duty.interval if pause is None else pause

    def _ask(self, statement: Statement[T], /) -> T:
        connection = self._connected()
        left = self.seconds_left
        if left <= 0 or self._closed:
            raise TermEnded
        try:
            with connection.transaction():
                # The server holds to it even if this process is stopped meanwhile, or its network gone.
                connection.execute(
                    "select set_config('statement_timeout', %s, true)", [f"{1 + left * 1000:.0f}ms"]
                )
                return Engine(connection).run(statement)
        except psycopg.Error as error:
            raise translate(error) from error

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            try:
                self._connection = psycopg.connect(self._url, autocommit=True)
                configure_session(self._connection)
            except psycopg.Error as error:
                raise translate(error) from error
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()
