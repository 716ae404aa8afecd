"""Loops that run beside the requests, and never end by themselves."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.server.problem import log

RESTART_SECONDS = 1.0

Loop = Callable[[], Awaitable[None]]


async def keep_running(name: str, *loops: Loop) -> None:
    """Runs them together until it is cancelled. If one fails, logs its error and starts all of them again.

    One that returns has nothing left to do; the others go on.
    """
    while True:
        try:
            async with asyncio.TaskGroup() as group:
                for loop in loops:
                    group.create_task(_run(loop))
        except* Exception as failed:  # noqa: BLE001 - whatever it was, requests need the loops
            log.error("loop_failed", loop=name, exc_info=failed.exceptions[0])
        else:
            return
        await asyncio.sleep(RESTART_SECONDS)


async def _run(loop: Loop) -> None:
    await loop()
