"""Enqueueing of many callers in few round trips.

While one is in flight, the next tasks gather; when it returns, all of them go at once. There is no timer: a
caller that is alone waits for nobody.
"""

import asyncio
from collections.abc import Sequence

from holdfast.client.batch import fitting
from holdfast.connections.pool import AsyncPool
from holdfast.engine import AsyncEngine, enqueue
from holdfast.engine.enqueue import Enqueued, NewTask
from holdfast.errors import DatabaseUnavailable

MOST = 1000
"""Enough to make the round trip cheap, and few enough that nobody waits long for his neighbours."""

Waiting = tuple[NewTask, asyncio.Future[Enqueued]]


class Gatherer:
    """For one event loop."""

    def __init__(self, link: AsyncPool) -> None:
        self._link = link
        self._waiting: list[Waiting] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, task: NewTask) -> Enqueued:
        answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((task, answer))
        if self._sender is None:
            # A task of its own: the caller that came first may be cancelled, and the others still wait.
            self._sender = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                count = fitting([task for task, _ in self._waiting[:MOST]])
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                await self._send([(task, answer) for task, answer in batch if not answer.done()])
        finally:
            self._sender = None
            for _, answer in self._waiting:
                answer.cancel()

    async def _send(self, batch: Sequence[Waiting]) -> None:
        if not batch:
            return
        try:
            enqueued = await self._enqueued([task for task, _ in batch])
        except DatabaseUnavailable as error:
            await self._settle_unknown(batch, error)
        except Exception as error:  # noqa: BLE001 - handed to the caller whose task it is about
            await self._settle_refused(batch, error)
        except BaseException:
            for _, answer in batch:
                answer.cancel()
            raise
        else:
            for (_, answer), one in zip(batch, enqueued, strict=True):
                _resolve(answer, one)

    async def _enqueued(self, tasks: list[NewTask]) -> list[Enqueued]:
        async def work(engine: AsyncEngine) -> list[Enqueued]:
            if len(tasks) == 1:
                return [await engine.run(enqueue.enqueue_one(tasks[0]))]
            return await engine.run(enqueue.enqueue_many(tasks))

        return await self._link.run(work, repeatable=all(task.idempotency_key for task in tasks))

    async def _settle_refused(self, batch: Sequence[Waiting], error: Exception) -> None:
        """Nothing was written, so halves are sent until the refused one is alone."""
        if len(batch) == 1:
            _refuse(batch[0][1], error)
            return
        middle = len(batch) // 2
        await self._send(batch[:middle])
        await self._send(batch[middle:])

    async def _settle_unknown(self, batch: Sequence[Waiting], error: DatabaseUnavailable) -> None:
        """Nobody knows whether it was written: only those with a key may ask again."""
        keyed = [waiting for waiting in batch if waiting[0].idempotency_key]
        again = keyed if len(keyed) < len(batch) else []
        for waiting in batch:
            if waiting not in again:
                _refuse(waiting[1], error)
        await self._send(again)


def _resolve(answer: asyncio.Future[Enqueued], enqueued: Enqueued) -> None:
    if not answer.done():
        answer.set_result(enqueued)


def _refuse(answer: asyncio.Future[Enqueued], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
