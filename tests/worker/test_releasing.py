"""Jobs that a worker will not run are held until that is decided, and no longer, whatever fails meanwhile."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog

from holdfast._engine import Statement
from holdfast._worker.jobs import Job
from holdfast._worker.metrics import Metrics
from holdfast._worker.releasing import Releaser
from holdfast._worker.report import AttemptEnd
from holdfast._worker.unhandled import UnhandledTasks
from support.leases import claimed


class BrokenLink:
    """A connection on which something fails that nobody has thought of."""

    async def run(self, _: Callable[[], Statement[Any]]) -> Any:
        raise ZeroDivisionError


async def test_a_release_that_fails_unexpectedly_lets_go_of_its_jobs() -> None:
    releaser = Releaser(BrokenLink(), "w1", structlog.get_logger(), Metrics())  # type: ignore[arg-type]
    left: list[Job] = []
    jobs = [_job("a"), _job("b")]
    releaser.release_soon(jobs, left.append)
    await releaser.emptied()
    assert left == jobs


async def test_a_decision_that_fails_unexpectedly_postpones_its_jobs_and_those_that_come_later() -> None:
    ends: list[AttemptEnd] = []
    later = asyncio.Event()

    def end(_: Job, attempt_end: AttemptEnd) -> None:
        ends.append(attempt_end)
        later.set()

    unhandled = UnhandledTasks(
        BrokenLink(),  # type: ignore[arg-type]
        "w1",
        grace=timedelta(minutes=10),
        knows_types=True,
        end=end,
        log=structlog.get_logger(),
    )
    for name in ("a", "b"):
        unhandled.add(_job(name))
        await later.wait()
        later.clear()
        await unhandled.emptied()
    assert [one.status for one in ends] == ["snooze", "snooze"]


def _job(name: str) -> Job:
    return Job(claimed(name), asyncio.get_running_loop().time())
