"""Events as JSON lines on standard output, to look at while developing."""

import asyncio
import sys

from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.sink import Options, Place


class ConsoleOptions(Options):
    """There are none."""


class ConsoleSink:
    """The target is not used; write -."""

    concurrency = 100
    timeout = 15.0

    def __init__(self, place: Place) -> None:
        ConsoleOptions.model_validate(place.options)

    async def send(self, event: OutgoingEvent, /) -> None:
        await asyncio.to_thread(_print, event.structured.body)

    async def close(self) -> None:
        """Nothing is open."""


def _print(line: bytes) -> None:
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
