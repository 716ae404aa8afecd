"""`ctx.transaction(name)`: the rows of the application and the memo of the step in one commit.

Python cannot skip the block of a `with` statement. So in a run that has committed the step already, `db`
raises at its first use, and the statement catches that: the rest of the block is skipped.
"""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol

from holdfast import tracing
from holdfast.context import Stopped
from holdfast.errors import InvalidStep, ResultError
from holdfast.serialization.codec import ResultCodec
from holdfast.workflows.calls import Call, CallSite
from holdfast.workflows.memory import StepFact
from holdfast.workflows.step import Inside, StepFunction, describe_function


class AlreadyCommitted(BaseException):
    """Raised by `db` in a block whose step has been committed before. Its `with` statement catches it."""


class TransactionRun(Protocol):
    """What a transaction needs of its run."""

    def recall(self, name: str) -> StepFact | None: ...
    def value_of(self, fact: StepFact, codec: ResultCodec) -> Any: ...
    def check_room(self, name: str, number: int) -> None: ...
    def check_result(self, written: str) -> str: ...
    def open_transaction(self) -> Any: ...
    def transaction_memo(
        self, name: str, number: int, began: float, result: str | None, arguments: str | None
    ) -> str: ...
    def preview(self, function: Callable[..., Any], args: Sequence[Any], given: int = 0) -> str | None: ...
    def begin_work(self) -> None: ...
    def end_work(self) -> None: ...


class AsyncTransactionRun(TransactionRun, Protocol):
    def begin_call(self, site: CallSite) -> None: ...
    def end_call(self, site: CallSite, error: BaseException | None = None) -> None: ...
    async def load(self) -> None: ...
    async def flush(self) -> None: ...


class BlockingTransactionRun(TransactionRun, Protocol):
    def load(self) -> None: ...
    def flush(self) -> None: ...


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
    """One call of `ctx.transaction(name)`."""

    def __init__(self, run: Any, name: str, number: int) -> None:
        self._run = run
        self._name = name
        self._number = number
        self.opened: Call | None = None
        self._began = 0.0
        self._result: str | None = None
        self._arguments: str | None = None
        self._transaction: Any = None
        self._span = tracing.step(name, 1)
        self._inside = Inside(name)

    def _enter(self) -> None:
        if self.opened is not None:
            self.opened.began()

    def _is_skipped(self, error: BaseException | None) -> bool:
        return isinstance(error, AlreadyCommitted) and error.args[0] is self

    def _memo(self) -> str:
        memo: str = self._run.transaction_memo(
            self._name, self._number, self._began, self._result, self._arguments
        )
        return memo

    def _judge(self, verdict: str) -> None:
        if verdict != "recorded":
            raise Stopped("lost" if verdict in ("busy", "already") else verdict)

    def _kept(self, function: StepFunction, value: Any) -> Any:
        """The value as a resumed run will see it. It is written with the commit."""
        try:
            written, read = function.codec.encode_both_ways(value)
            self._result = self._run.check_result(written)
        except ResultError as error:
            raise InvalidStep(f"the transaction {self._name} was rolled back: {error.message}") from error
        return read


class AsyncStepTransaction(StepTransaction):
    """With `async with`, or awaited in the form with a function."""

    _run: AsyncTransactionRun

    def __init__(self, run: AsyncTransactionRun, name: str, number: int, site: CallSite) -> None:
        super().__init__(run, name, number)
        self._site = site

    def __enter__(self) -> NoReturn:
        raise InvalidStep(
            f"{self._site} is entered with `with`, and its handler is async",
            hint="Write async with.",
        )

    def __exit__(self, *given: object) -> None:
        """Without it, Python would refuse `with` before `__enter__` could say what to write."""

    async def __aenter__(self) -> Any:
        self._enter()
        self._run.begin_call(self._site)
        try:
            return await self._begun()
        except BaseException as error:
            self._run.end_call(self._site, error)
            raise

    async def _begun(self) -> Any:
        await self._run.load()
        if self._run.recall(self._name) is not None:
            return SkippedConnection(self)
        await self._run.flush()
        self._run.check_room(self._name, self._number)
        self._began = time.monotonic()
        self._run.begin_work()
        try:
            self._transaction = self._run.open_transaction()
            connection = await self._transaction.abegin()
        except BaseException:
            self._run.end_work()
            raise
        self._span.__enter__()
        self._inside.__enter__()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        transaction = self._transaction
        if transaction is None:
            self._run.end_call(self._site)
            return self._is_skipped(error)
        try:
            if kind is not None:
                await transaction.arollback()
            else:
                self._judge(await transaction.acommit(self._memo()))
        finally:
            self._inside.__exit__()
            self._run.end_work()
            self._run.end_call(self._site, error)
            self._span.__exit__(kind, error, trace)
        return False

    async def call(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        described = describe_function(function)
        self._run.begin_call(self._site)
        try:
            await self._run.load()
            fact = self._run.recall(self._name)
            if fact is not None:
                return self._run.value_of(fact, described.codec)
            self._arguments = self._run.preview(function, args, given=1)
            async with self as db:
                value = function(db, *args)
                return self._kept(described, await value if described.is_async else value)
        finally:
            self._run.end_call(self._site)


class BlockingStepTransaction(StepTransaction):
    """With `with`, in a plain function."""

    _run: BlockingTransactionRun

    def __enter__(self) -> Any:
        self._enter()
        self._run.load()
        if self._run.recall(self._name) is not None:
            return SkippedConnection(self)
        self._run.flush()
        self._run.check_room(self._name, self._number)
        self._began = time.monotonic()
        self._transaction = self._run.open_transaction()
        connection = self._transaction.begin()
        self._span.__enter__()
        self._inside.__enter__()
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        transaction = self._transaction
        if transaction is None:
            return self._is_skipped(error)
        try:
            if kind is not None:
                transaction.rollback()
            else:
                self._judge(transaction.commit(self._memo()))
        finally:
            self._inside.__exit__()
            self._span.__exit__(kind, error, trace)
        return False

    def call(self, described: StepFunction, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        self._run.load()
        fact = self._run.recall(self._name)
        if fact is not None:
            return self._run.value_of(fact, described.codec)
        self._arguments = self._run.preview(function, args, given=1)
        with self as db:
            return self._kept(described, function(db, *args))
