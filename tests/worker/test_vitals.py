"""What a worker reports about itself with its heartbeats: memory, and how many attempts end per second."""

import pytest

from holdfast._worker.metrics import Metrics
from support.workshop import Workshop


def test_the_rate_is_that_of_the_last_five_minutes() -> None:
    metrics = Metrics()
    begin = metrics._samples[0][0]
    endings = metrics.attempts_of("work", "a.b").endings
    endings["succeeded"] = 600
    assert metrics.vitals(begin + 60).per_second == pytest.approx(10)
    assert metrics.vitals(begin + 300).per_second == pytest.approx(2)
    for seconds in range(310, 400, 10):
        metrics.vitals(begin + seconds)
    assert metrics.vitals(begin + 400).per_second == 0
    assert metrics.vitals(begin + 400).finished == 600


def test_memory_is_that_of_this_process() -> None:
    found = Metrics().vitals().memory_bytes
    assert found is not None
    assert 2**20 < found < 2**40


async def test_a_worker_reports_its_vitals_whether_it_works_or_rests(shop: Workshop) -> None:
    @shop.task("work.quick")
    async def quick() -> None:
        pass

    async with shop.working(poll_interval="100ms"):
        await shop.ended(await quick.aenqueue())
        found = await shop.until("select * from queues.worker_status where finished = 1")
    assert found["memory_bytes"] > 2**20
    assert found["per_second"] > 0
