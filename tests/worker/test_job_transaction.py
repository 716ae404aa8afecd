"""ctx.transaction(): what the handler wrote and how its task ended are committed together, or not at all."""

import asyncio
import contextlib
import threading
from typing import Any

import psycopg
import pytest

from holdfast import Context, NoRetry, SyncContext
from holdfast._worker.transactions import JobTransaction
from support.workshop import Workshop

KINDS = pytest.mark.parametrize("kind", ["async", "sync", "sync behind middleware"])


@pytest.fixture(autouse=True)
def ledger(shop: Workshop) -> None:
    shop.conn.execute("create table ledger (entry text primary key)")


def entries(shop: Workshop) -> list[str]:
    return [row[0] for row in shop.conn.execute("select entry from ledger order by 1").fetchall()]


def registered(shop: Workshop, kind: str, then: Any = None, **options: Any) -> Any:
    """A handler that writes an entry in its transaction, and does then what is asked."""

    async def write(ctx: Context, entry: str) -> Any:
        async with ctx.transaction() as connection:
            await connection.execute("insert into ledger values (%s)", [entry])
        return then() if then else "written"

    def write_here(ctx: SyncContext, entry: str) -> Any:
        with ctx.transaction() as connection:
            connection.execute("insert into ledger values (%s)", [entry])
        return then() if then else "written"

    async def pass_on(call: Any, proceed: Any) -> Any:
        return await proceed()

    if kind == "sync behind middleware":
        shop.app.middleware(pass_on)
    return shop.task("work.write", **options)(write if kind == "async" else write_here)


@KINDS
async def test_what_was_written_and_the_outcome_are_committed_together(shop: Workshop, kind: str) -> None:
    task = registered(shop, kind)
    async with shop.working() as worker:
        handle = await task.aenqueue(entry="a")
        row = await shop.ended(handle)
        await shop.sees(lambda: worker.metrics.finished["succeeded"] == 1)
        assert not worker._parts.jobs.held
    written, ended = shop.conn.execute(
        "select (select xmin::text from ledger), (select xmin::text from queues.outcome)"
    ).fetchone() or (0, 1)
    assert written == ended
    assert row["result"] == "written"


@KINDS
async def test_what_was_written_is_rolled_back_when_the_handler_raises(shop: Workshop, kind: str) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    task = registered(shop, kind, fail, retry=NoRetry())
    async with shop.working():
        row = await shop.ended(await task.aenqueue(entry="a"))
    assert (row["status"], entries(shop)) == ("failed", [])


@KINDS
async def test_what_was_written_is_rolled_back_with_a_result_that_json_cannot_hold(
    shop: Workshop, kind: str
) -> None:
    task = registered(shop, kind, object)
    async with shop.working():
        row = await shop.ended(await task.aenqueue(entry="a"))
    assert (row["error"]["kind"], entries(shop)) == ("result_not_serializable", [])


@KINDS
async def test_what_was_written_is_rolled_back_when_the_lease_was_lost(shop: Workshop, kind: str) -> None:
    other = shop.db.connect()
    attempts: list[int] = []

    def lose() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            other.execute(
                "update queues.lease "
                "set started_at = claimed_at, lease_until = lease_until - interval '1 hour'"
            )
            other.execute("select queues.sweep()")
        return f"attempt {len(attempts)}"

    task = registered(shop, kind, lose)
    async with shop.working(lease="1h", heartbeat="10m", worker_timeout="1h"):
        row = await shop.ended(await task.aenqueue(entry="a"))
        await shop.logged("result_refused", verdict="lost")
    assert (row["result"], row["attempt"], entries(shop)) == ("attempt 2", 2, ["a"])


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_task_that_is_locked_until_its_lease_ends_does_not_run_again(
    shop: Workshop, kind: str
) -> None:
    """An application cancels it, and rolls that back. No heartbeat could write down that it has begun."""
    begun, gate = threading.Event(), threading.Event()
    ran = []

    def wait() -> None:
        ran.append(1)
        begun.set()
        gate.wait()

    async def write(ctx: Context) -> None:
        async with ctx.transaction():
            await asyncio.to_thread(wait)

    def write_here(ctx: SyncContext) -> None:
        with ctx.transaction():
            wait()

    handler: Any = write if kind == "async" else write_here
    task = shop.task("work.write", max_attempts=1)(handler)
    application = shop.db.connect(autocommit=False)
    async with shop.working(lease="2s", heartbeat="700ms"):
        handle = await task.aenqueue()
        await shop.sees(begun.is_set)
        application.execute("select queues.cancel(%s)", [handle.task_id])
        gate.set()
        await shop.logged("result_refused", verdict="busy")
        application.rollback()
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"], len(ran)) == ("dead_letter", 1, 1)


@KINDS
async def test_a_transaction_ends_although_the_lease_was_renewed_and_the_default_isolation_is_stricter(
    shop: Workshop, kind: str
) -> None:
    other = shop.db.connect()
    other.execute(
        f"alter database {shop.db.name} set default_transaction_isolation = 'repeatable read'".encode()
    )

    def renew() -> str:
        other.execute("update queues.lease set lease_until = lease_until + interval '1 minute'")
        return "renewed"

    task = registered(shop, kind, renew, retry=NoRetry())
    async with shop.working(heartbeat="10m", lease="1h", worker_timeout="1h"):
        row = await shop.ended(await task.aenqueue(entry="a"))
    assert (row["status"], entries(shop)) == ("succeeded", ["a"])


@KINDS
async def test_a_commit_that_is_refused_is_an_error_of_the_attempt(shop: Workshop, kind: str) -> None:
    shop.conn.execute(
        "create table child (entry text references ledger deferrable initially deferred);"
        "create function add_child() returns trigger language plpgsql as"
        " $$ begin insert into child values ('nobody'); return null; end $$;"
        "create trigger add_child after insert on ledger for each row execute function add_child()"
    )
    task = registered(shop, kind, retry=NoRetry())
    async with shop.working():
        row = await shop.ended(await task.aenqueue(entry="a"))
    assert (row["status"], row["error"]["kind"], entries(shop)) == ("failed", "handler_error", [])
    assert "ForeignKeyViolation" in row["last_error"]


@KINDS
@pytest.mark.parametrize("happened", [True, False])
async def test_a_commit_without_an_answer_counts_once(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, kind: str, happened: bool
) -> None:
    """Whether it happened or not: the task ends, and its entry is there once."""
    lost: list[bool] = []

    def lose_once() -> bool:
        lost.append(True)
        return len(lost) == 1

    commit, acommit = psycopg.Connection.commit, psycopg.AsyncConnection.commit

    def commit_without_answer(self: psycopg.Connection[Any]) -> None:
        if lose_once() and not happened:
            self.close()
            raise psycopg.OperationalError("the connection is lost")
        commit(self)
        if len(lost) == 1:
            self.close()
            raise psycopg.OperationalError("the connection is lost")

    async def acommit_without_answer(self: psycopg.AsyncConnection[Any]) -> None:
        if lose_once() and not happened:
            await self.close()
            raise psycopg.OperationalError("the connection is lost")
        await acommit(self)
        if len(lost) == 1:
            await self.close()
            raise psycopg.OperationalError("the connection is lost")

    task = registered(shop, kind)
    async with shop.working():
        await shop.until("select from queues.worker where idle")
        monkeypatch.setattr(psycopg.Connection, "commit", commit_without_answer)
        monkeypatch.setattr(psycopg.AsyncConnection, "commit", acommit_without_answer)
        row = await shop.ended(await task.aenqueue(entry="a"))
    assert (row["status"], entries(shop)) == ("succeeded", ["a"])
    assert row["attempt"] == (1 if happened else 2)
    assert shop.lines("commit_unknown")


async def test_a_block_of_the_connections_own_is_part_of_the_whole(shop: Workshop) -> None:
    @shop.task("work.write", retry=NoRetry())
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            async with connection.transaction():
                await connection.execute("insert into ledger values ('a')")
            raise RuntimeError("after the block")

    async with shop.working():
        await shop.ended(await write.aenqueue())
    assert entries(shop) == []


async def test_a_handler_has_one_transaction(shop: Workshop) -> None:
    @shop.task("work.write", retry=NoRetry())
    async def write(ctx: Context) -> None:
        async with ctx.transaction(), ctx.transaction():
            pass

    async with shop.working():
        row = await shop.ended(await write.aenqueue())
    assert "a handler has one transaction" in row["last_error"]


async def test_a_handler_may_begin_anew_after_it_rolled_back(shop: Workshop) -> None:
    @shop.task("work.write", retry=NoRetry())
    def write(ctx: SyncContext) -> None:
        for entry in ("a", "b"):
            with contextlib.suppress(ZeroDivisionError), ctx.transaction() as connection:
                connection.execute("insert into ledger values (%s)", [entry])
                1 / (entry != "a")

    async with shop.working():
        await shop.ended(await write.aenqueue())
    assert entries(shop) == ["b"]


async def test_an_async_handler_is_told_to_write_async_with(shop: Workshop) -> None:
    @shop.task("work.write", retry=NoRetry())
    async def write(ctx: Context) -> None:
        with ctx.transaction():  # type: ignore[attr-defined]
            pass

    async with shop.working():
        row = await shop.ended(await write.aenqueue())
    assert "write async with ctx.transaction()" in row["last_error"]


async def test_a_handler_that_could_not_connect_may_end_without_a_transaction(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.task("work.write")
    async def write(ctx: Context) -> str:
        try:
            async with ctx.transaction():
                return "connected"
        except psycopg.Error:
            return "not connected"

    async with shop.working():
        await shop.until("select from queues.worker where idle")
        monkeypatch.setattr(JobTransaction, "__init__", _to_nowhere)
        row = await shop.ended(await write.aenqueue())
    assert row["result"] == "not connected"


async def test_a_cancelled_handler_rolls_back(shop: Workshop) -> None:
    @shop.task("work.write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into ledger values ('a')")
            await asyncio.Event().wait()

    async with shop.working(heartbeat="100ms") as worker:
        handle = await write.aenqueue()
        await shop.becomes(handle, "running")
        await handle.acancel()
        await shop.sees(lambda: not worker._parts.jobs.slots.running)
        await shop.until(
            "select where not exists (select from pg_stat_activity where state like 'idle in transaction%%')"
        )
    assert entries(shop) == []


def _to_nowhere(self: JobTransaction, url: str, job: Any) -> None:
    del url
    self._url, self._job = "host=/nonexistent", job
    self._connection = self._async_connection = None
