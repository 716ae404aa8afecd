"""Writes events as JSON lines to standard output, for development."""

import asyncio
import sys

from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.sink import SinkConfig, SinkOptions


class ConsoleOptions(SinkOptions):
    """This sink has no options."""


class ConsoleSink:
    """Ignores its target; subscriptions use -."""

    concurrency = 100
    timeout = 15.0

    def __init__(self, config: SinkConfig) -> None:
        ConsoleOptions.model_validate(config.options)

    async def send(self, event: OutgoingEvent, /) -> None:
        await asyncio.to_thread(_print, event.structured.body)

    async def close(self) -> None:
        """Nothing to close."""


def _print(line: bytes) -> None:
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
