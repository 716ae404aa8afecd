"""Steps of several real sessions, in an order that the test decides."""

import select
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, permutations, product

from psycopg import pq

from support.database import Database
from support.engine import Connection
from support.invariant import assert_invariant
from support.start_states import Stage

REFUSED = "refused with "
SERIALIZATION_FAILURE = f"{REFUSED}40001"
_PATIENCE = 0.0005  # seconds to wait for an answer before asking whether the session is blocked


@dataclass(frozen=True)
class Call:
    """One call of a function. `{side}` tells two calls apart; the other names come from the start state."""

    name: str
    sql: str
    skips: str | None = None  # what it answers when all that it could take is locked by others
    passing: tuple[str, ...] = ()  # what it amounts to when rows that it means are locked by others

    @property
    def waits_for_nobody(self) -> bool:
        return self.skips is not None or bool(self.passing)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Side:
    """A call as one of the sessions makes it."""

    name: str
    call: Call


Steps = Sequence[tuple[Side, str]]


def opened(side: Side) -> Steps:
    return [(side, "begin"), (side, "call")]


def ends(first: Side, second: Side) -> Iterator[tuple[bool, Steps]]:
    """How two open transactions may end, and whether that can be when the second call waits for the first."""
    yield True, [(first, "commit"), (second, "commit")]
    yield True, [(first, "rollback"), (second, "commit")]
    yield True, [(first, "commit"), (second, "rollback")]
    yield False, [(second, "commit"), (first, "commit")]


@dataclass(frozen=True)
class History:
    """What everybody was told, and what the database looks like at the end."""

    answers: tuple[tuple[str, str], ...]
    picture: str

    def __str__(self) -> str:
        return "\n".join([*(f"{name} was told {told}" for name, told in self.answers), self.picture])


class Session:
    """A session that can be left waiting: it is given a statement, and asked later whether it is through."""

    def __init__(self, connection: Connection) -> None:
        connection.execute("set deadlock_timeout = '10ms'")  # a deadlock is to show at once
        self.pid = connection.info.backend_pid
        self._connection = connection.pgconn

    def start(self, statement: str) -> None:
        self._connection.send_query(statement.encode())
        self._connection.flush()

    def is_through(self, timeout: float = 0) -> bool:
        if select.select([self._connection.socket], [], [], timeout)[0]:
            self._connection.consume_input()
        return not self._connection.is_busy()

    def answer(self) -> str:
        """Rows as text, or the SQLSTATE of a refusal."""
        told = ""
        while result := self._connection.get_result():
            if result.status == pq.ExecStatus.FATAL_ERROR:
                told = REFUSED + (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            elif result.status == pq.ExecStatus.TUPLES_OK:
                told = "; ".join(
                    ", ".join(
                        (result.get_value(row, column) or b"null").decode()
                        for column in range(result.nfields)
                    )
                    for row in range(result.ntuples)
                )
        return told

    def run(self, statement: str) -> str:
        self.start(statement)
        while not self.is_through(60):
            pass
        return self.answer()


@dataclass
class Theatre:
    """Plays calls against each other from a start state, and knows which results are in order."""

    database: Database
    stage: Stage
    afterwards: str = ""  # what the engine does soon in any case, before one looks at what came of the calls
    played: int = 0
    _sessions: dict[str, Session] = field(default_factory=dict)
    _sound: set[str] = field(default_factory=set)
    _rows: dict[str, set[str]] = field(default_factory=dict)
    _tables: dict[tuple[str, Side], set[str]] = field(default_factory=dict)
    _alone: dict[tuple[str, tuple[Side, ...]], History] = field(default_factory=dict)

    def session(self, name: str) -> Session:
        if name not in self._sessions:
            self._sessions[name] = Session(self.database.connect())
        return self._sessions[name]

    def one_by_one(self, state: str, sides: tuple[Side, ...]) -> History:
        """What comes of these calls when each is committed before the next begins."""
        if (state, sides) not in self._alone:
            self.stage.load(state)
            told = {side.name: self.session(side.name).run(self.statement(state, side)) for side in sides}
            self._alone[state, sides] = self.history(state, told)
        return self._alone[state, sides]

    def acts(self, state: str, side: Side) -> bool:
        """Whether the call changes anything in this state."""
        return self.one_by_one(state, (side,)).picture != self.one_by_one(state, ()).picture

    def tables(self, state: str, side: Side) -> set[str]:
        """The tables that the call touches when it is alone."""
        if (state, side) not in self._tables:
            self.stage.load(state)
            session = self.session(side.name)
            session.run("begin")
            session.run(self.statement(state, side))
            found = self.stage.admin.execute(
                "select c.relname from pg_locks l join pg_class c on c.oid = l.relation where l.pid = %s",
                [session.pid],
            ).fetchall()
            session.run("rollback")
            self._tables[state, side] = {row[0] for row in found}
        return self._tables[state, side]

    def rows(self, state: str) -> set[str]:
        """The tables in which tasks have rows that calls wait for."""
        if state not in self._rows:
            self.stage.load(state)
            self._rows[state] = {
                table
                for table in ("ready", "lease", "outcome", "deletion", "waiter")
                if self.stage.admin.execute(f"select from queues.{table}".encode()).fetchone() is not None
            }
        return self._rows[state]

    def in_order(self, state: str, sides: Iterable[Side]) -> Iterator[History]:
        """Everything that may come of calls at the same time: what some order of them would have led to.

        A call that passes over what others have locked may also find nothing, or say that the task is busy.
        """
        for everybody in product(*map(_variants, sides)):
            yield from self._orders(state, everybody)

    def _orders(self, state: str, everybody: tuple[Side, ...]) -> Iterator[History]:
        for finds_nothing in _subsets([side for side in everybody if side.call.skips is not None]):
            for order in permutations([side for side in everybody if side not in finds_nothing]):
                serial = self.one_by_one(state, order)
                nothing = tuple((side.name, side.call.skips or "") for side in finds_nothing)
                yield History(tuple(sorted((*serial.answers, *nothing))), serial.picture)

    def play(
        self, state: str, steps: Steps, isolation: str = "read committed", *, loosely: bool = False
    ) -> set[str]:
        """Play these steps and judge what came of them. Answer who had to wait.

        The steps of a session that waits are put off until it is through. Judged loosely, nobody may be
        refused who would not be refused in some order, and nothing may be broken, but who gets what is open.
        """
        self.stage.load(state)
        self.played += 1
        told: dict[str, str] = {}
        lost = {side.name for side, action in steps if action == "rollback"}
        to_do, in_flight, waited = list(steps), set[str](), set[str]()
        while to_do:
            free = next((step for step in to_do if step[0].name not in in_flight), None)
            if free:
                to_do.remove(free)
                side, action = free
                if action == "call":
                    self.session(side.name).start(self.statement(state, side))
                    in_flight.add(side.name)
                elif self._take(side, action, isolation) == SERIALIZATION_FAILURE:
                    lost.add(side.name)
            through = self.settle(*in_flight)
            told |= {name: self.session(name).answer() for name in through}
            in_flight -= set(through)
            waited |= in_flight
        if isolation != "read committed":
            lost |= {name for name, answer in told.items() if answer == SERIALIZATION_FAILURE}

        survivors = list(dict.fromkeys(side for side, _ in steps if side.name not in lost))
        history = self.history(state, {side.name: told[side.name] for side in survivors})
        allowed = set(self.in_order(state, survivors))
        script = ", ".join(f"{side.name} {action}" for side, action in steps)
        calls = {side.name: side.call.name for side, _ in steps}
        told_before = {answer for expected in allowed for _, answer in expected.answers}
        refusals = {answer for _, answer in history.answers if answer.startswith(REFUSED)}
        assert refusals <= told_before if loosely else history in allowed, "\n\n".join(
            [f"from {state}: {script} with {calls} led to", str(history), "instead of", *map(str, allowed)]
        )
        self._check(history)
        return waited

    def _take(self, side: Side, action: str, isolation: str) -> str:
        if action != "begin":
            return self.session(side.name).run(action)
        snapshot = "" if isolation == "read committed" else "; select 1"
        return self.session(side.name).run(f"begin isolation level {isolation}{snapshot}")

    def _check(self, history: History) -> None:
        if history.picture not in self._sound:
            assert_invariant(self.stage.admin)
            self._sound.add(history.picture)

    def statement(self, state: str, side: Side) -> str:
        return side.call.sql.format(side=side.name, **self.stage.names[state])

    def history(self, state: str, told: dict[str, str]) -> History:
        answers = {name: self.stage.anonymous(state, answer) for name, answer in told.items()}
        if self.afterwards:
            self.stage.admin.execute(self.afterwards.encode())
        return History(tuple(sorted(answers.items())), self.stage.picture(state))

    def settle(self, *names: str) -> list[str]:
        """Wait until each of them is through or blocked by another; answer those that are through."""
        through: list[str] = []
        for name in names:
            session = self.session(name)
            while not session.is_through(_PATIENCE):
                if self._is_blocked(session):
                    break
            else:
                through.append(name)
        return through

    def _is_blocked(self, session: Session) -> bool:
        """Who changes a limit tries again and again, so that it can say in the end who was in the way."""
        others = [other.pid for other in self._sessions.values()]
        asked = """select pg_catalog.pg_isolation_test_session_is_blocked(%s, %s::integer[]) or exists (
                     select from pg_stat_activity where pid = %s and wait_event = 'PgSleep'
                       and query ~ '(set|drop)_limit')"""
        found = self.stage.admin.execute(asked, [session.pid, others, session.pid]).fetchone()
        return bool(found and found[0])


def _variants(side: Side) -> list[Side]:
    passing = [Call(f"{side.call} passing over {n}", sql) for n, sql in enumerate(side.call.passing)]
    return [side, *(Side(side.name, call) for call in passing)]


def _subsets(sides: Sequence[Side]) -> Iterator[tuple[Side, ...]]:
    return chain.from_iterable(combinations(sides, size) for size in range(len(sides) + 1))
