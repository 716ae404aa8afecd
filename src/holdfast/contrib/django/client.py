"""Calls to the engine on Django's own connection, so that they belong to `transaction.atomic`."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from holdfast._connections.client import Client, Progress, refuse_in_event_loop
from holdfast._connections.enqueueing import Tasks
from holdfast._connections.session import DatabaseAddress
from holdfast._connections.transaction import run_in
from holdfast._engine import Statement
from holdfast._engine.enqueue import Enqueued, NewTask, enqueue_one
from holdfast.contrib.django.conf import dsn_of, read_conf
from holdfast.errors import NotInstalled, UnitNotInstalled

T = TypeVar("T")

INSTALL = (
    "Run python manage.py migrate, or let an administrator install it: manage.py holdfast migrate --sql."
)


class DjangoAddress(DatabaseAddress):
    """The database of an alias. It is read at each use: a test runner changes it to its test database."""

    def __init__(self, alias: Callable[[], str]) -> None:
        super().__init__(lambda: dsn_of(alias()))
        self.alias = alias

    def get(self) -> str:
        return self._resolve()

    async def aget(self) -> str:
        return self._resolve()


class DjangoClient(Client):
    """Without `tx`, calls use Django's connection of this thread. Only waiting for a result opens others."""

    def __init__(self, address: DjangoAddress, reply_seconds: float) -> None:
        super().__init__(address, reply_seconds)
        self._alias = address.alias

    def enqueue(self, task: NewTask, tx: Any) -> Enqueued:
        if tx is not None:
            return super().enqueue(task, tx)
        return self.run_here(enqueue_one(task), "enqueue")

    async def aenqueue(self, task: NewTask, tx: Any) -> Enqueued:
        if tx is not None:
            return await super().aenqueue(task, tx)
        return await sync_to_async(self.enqueue)(task, None)

    def enqueue_many(self, tasks: Tasks, tx: Any, progress: Progress | None) -> list[Enqueued]:
        if tx is not None:
            return super().enqueue_many(tasks, tx, progress)
        refuse_in_event_loop("enqueue_many", "aenqueue_many")
        alias = self._alias()
        with _naming_the_command(), transaction.atomic(using=alias):
            return super().enqueue_many(tasks, alias, progress)

    async def aenqueue_many(self, tasks: Tasks, tx: Any, progress: Progress | None) -> list[Enqueued]:
        if tx is not None:
            return await super().aenqueue_many(tasks, tx, progress)
        return await sync_to_async(self.enqueue_many)(tasks, None, progress)

    def run(self, statement: Statement[T], method: str, *, repeatable: bool = True) -> T:
        del repeatable  # Django reconnects between requests and between runs, not within them
        return self.run_here(statement, method)

    async def arun(self, statement: Statement[T], *, repeatable: bool = True) -> T:
        del repeatable
        return await sync_to_async(self.run_here)(statement, "run")

    def run_here(self, statement: Statement[T], method: str) -> T:
        """In an atomic block, a savepoint keeps a refused call from breaking the caller's transaction."""
        refuse_in_event_loop(method, f"a{method}")
        alias = self._alias()
        in_block = connections[alias].in_atomic_block
        block = transaction.atomic(using=alias) if in_block else contextlib.nullcontext()
        with _naming_the_command(), block:
            return run_in(alias, statement, method)


def default_alias() -> str:
    return read_conf().database


@contextlib.contextmanager
def _naming_the_command() -> Iterator[None]:
    """If the schema is missing, name the command of Django that installs it."""
    try:
        yield
    except UnitNotInstalled:
        raise
    except NotInstalled as error:
        raise NotInstalled(error.message, hint=INSTALL, sqlstate=error.sqlstate) from error
