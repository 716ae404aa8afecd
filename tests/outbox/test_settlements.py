"""A delivery result that cannot be stored delays no other."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from holdfast._engine import Statement
from holdfast._engine.events import Settlement
from holdfast._telemetry.logs import log_of
from holdfast.errors import HoldfastError, InvalidArgument, UnexpectedDatabaseError
from holdfast.outbox import settlements
from holdfast.outbox.settlements import SettlementWriter

BAD = str(UUID(int=2))


class Link:
    """Fails statements with the bad event: for good, or a few times."""

    def __init__(self, error: HoldfastError, times: int) -> None:
        self._error = error
        self._times = times

    async def pause(self, error: BaseException) -> None:
        raise error

    async def run(self, build: Callable[[], Statement[Any]]) -> Sequence[str]:
        events = [one["event_id"] for one in json.loads(build().params[1])]
        if BAD in events and self._times:
            self._times -= 1
            raise self._error
        return ["accepted"] * len(events)


@pytest.mark.parametrize(
    ("error", "times", "order", "logged"),
    [
        (InvalidArgument("no such JSON"), 99, [1, 2, 3], ["event_not_settled"]),
        (UnexpectedDatabaseError("a bad page", sqlstate="XX001"), 5, [1, 3, 2], []),
    ],
)
async def test_a_delivery_result_that_fails_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, error: HoldfastError, times: int, order: list[int], logged: list[str]
) -> None:
    monkeypatch.setattr(settlements, "RETRY_SECONDS", 0.01)
    link = Link(error, times)
    settled: list[int] = []
    with capture_logs() as logs:
        writer = SettlementWriter(link, "d1", log_of("holdfast.outbox"))  # type: ignore[arg-type]
        for n in (1, 2, 3):
            writer.add(Settlement(1, UUID(int=n), 1, "delivered"), lambda n=n: settled.append(n))  # type: ignore[misc]
        running = asyncio.create_task(writer.run())
        await writer.flush()
        running.cancel()
    assert settled == order
    assert [line["event"] for line in logs] == logged
