"""Steps whose memo is committed together with rows of the application.

Python cannot skip the block of a `with` statement. So in a run that has committed the step already, `db`
raises at its first use, and the statement catches that: the rest of the block is skipped. A block that does
not use `db` has run a second time: that is an error.
"""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

from holdfast._telemetry import tracing
from holdfast._workflows.calls import CallSite, EnteredCall
from holdfast._workflows.drivers import Driver
from holdfast._workflows.ends import Stopped
from holdfast._workflows.memory import Memory, RunState, StepMemo, memo_json
from holdfast._workflows.operations import Begin, Call, Commit, Plain, Rollback, Work
from holdfast._workflows.step import Inside, StepFunction
from holdfast.errors import InvalidStep, ResultError


class AlreadyCommitted(BaseException):
    """Raised by `db` in a block whose step has been committed before. Its `with` statement catches it."""


class SkippedConnection:
    """Stands for the connection in a block that was committed before."""

    def __init__(self, owner: "StepTransaction") -> None:
        object.__setattr__(self, "_owner", owner)

    def __getattribute__(self, name: str) -> NoReturn:
        del name
        raise AlreadyCommitted(object.__getattribute__(self, "_owner"))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        del name, value
        raise AlreadyCommitted(object.__getattribute__(self, "_owner"))


class StepTransaction:
    """One call of `ctx.step_transaction` or `ctx.step_in_transaction`: how it begins and ends."""

    def __init__(self, state: RunState, name: str, number: int, *, load: Callable[[], Work[Memory]]) -> None:
        self.name = name
        self._state = state
        self._number = number
        self._load = load
        self._began = 0.0
        self._result: str | None = None
        self._arguments: str | None = None
        self._transaction: Any = None
        self._span = tracing.step(name, 1)
        self._inside = Inside(name)

    def begin(self) -> Work[Any]:
        """Return the connection, or what stands for it."""
        memory = yield from self._load()
        if self.name in memory.steps:
            return SkippedConnection(self)
        yield Plain.FLUSH
        self._state.check()
        memory.check_room(self.name, self._number)
        self._began = time.monotonic()
        self._transaction, connection = yield Begin()
        self._span.__enter__()
        self._inside.__enter__()
        return connection

    def end(self, error: BaseException | None) -> Work[bool]:
        """Commit with the step, or roll back. True if the error only skipped the block."""
        if self._transaction is None:
            if error is None:
                raise InvalidStep(
                    f"the block of ctx.step_transaction({self.name!r}) was committed before, "
                    "and has run again because it does not use its connection",
                    hint="Use the connection in its first line, or write ctx.step_in_transaction(function).",
                )
            return isinstance(error, AlreadyCommitted) and error.args[0] is self
        try:
            if error is not None:
                yield Rollback(self._transaction)
            else:
                verdict = yield Commit(self._transaction, self._written())
                if verdict != "recorded":
                    raise Stopped("lost" if verdict in ("busy", "already") else verdict)
        finally:
            self._inside.__exit__()
            self._span.__exit__(
                None if error is None else type(error), error, getattr(error, "__traceback__", None)
            )
        return False

    def calling(
        self,
        plan: StepFunction,
        function: Callable[..., Any],
        args: Sequence[Any],
        shown: Callable[[], str | None],
    ) -> Work[Any]:
        """The form with a function, whose result is remembered. `shown` are its arguments as JSON."""
        memory = yield from self._load()
        fact = memory.steps.get(self.name)
        if fact is not None:
            return memory.value_of(fact, plan.codec)
        self._arguments = shown()
        connection = yield from self.begin()
        try:
            value = yield Call(function, (connection, *args), plan.is_async, may_block=False)
            kept = self._kept(memory, plan, value)
        except BaseException as error:
            yield from self.end(error)
            raise
        yield from self.end(None)
        return kept

    def _kept(self, memory: Memory, plan: StepFunction, value: Any) -> Any:
        """The value as a resumed run will see it. It is written with the commit."""
        try:
            written, read = plan.codec.encode_both_ways(value)
            self._result = memory.check_result(written)
        except ResultError as error:
            raise InvalidStep(f"the transaction {self.name} was rolled back: {error.message}") from error
        return read

    def _written(self) -> str:
        """The inside of a JSON object, to be recorded in the transaction itself."""
        took = time.monotonic() - self._began
        memo = StepMemo(self.name, self._number, "transaction", took=took, result=self._result)
        return memo_json([memo._replace(arguments=self._arguments)])


class TransactionBlock:
    """The form with a block: `async with` in a coroutine, `with` in a plain function."""

    def __init__(self, transaction: StepTransaction, driver: Driver) -> None:
        self._transaction = transaction
        self._driver = driver
        self._site = CallSite("ctx.step_transaction", transaction.name)
        self._opened = EnteredCall(driver.calls, self._site)

    def __enter__(self) -> Any:
        if self._driver.is_async:
            raise InvalidStep(
                f"{self._site} is entered with `with`, and its handler is async",
                hint="Write async with.",
            )
        self._opened.began()
        return self._driver.run(self._transaction.begin())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._driver.run(self._transaction.end(error))

    async def __aenter__(self) -> Any:
        self._opened.began()
        self._driver.begin_call(self._site)
        try:
            return await self._driver.arun(self._transaction.begin())
        except BaseException as error:
            self._driver.end_call(self._site, error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return await self._driver.arun(self._transaction.end(error))
        finally:
            self._driver.end_call(self._site, error)
