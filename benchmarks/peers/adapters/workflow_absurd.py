# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
"""Runs with steps in absurd. Runs in the environment of the peer."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.peers.adapters import absurd as plain
from benchmarks.peers.adapters import common

RESULT = "r" * 58


@contextmanager
def producer() -> Iterator[common.Producer]:
    client, steps = plain.client(), common.ORDER["steps"]
    yield common.Producer(lambda seq: client.spawn("run", {"seq": seq, "steps": steps}, queue="noop"))
    client.close()


def worker() -> None:
    hit = common.hits_of_worker()
    client = plain.client()

    @client.register_task("run", queue="noop")
    def run(params: dict[str, Any], context: Any) -> None:
        for number in range(params["steps"]):
            slot = params["seq"] * params["steps"] + number

            def work(slot: int = slot) -> str:
                hit(slot)
                return RESULT

            context.step(f"work-{number}", work)

    signal.signal(signal.SIGTERM, lambda *_: client.stop_worker())
    common.ready()
    client.start_worker(concurrency=common.ORDER["concurrency"], poll_interval=common.ORDER["poll"])


if __name__ == "__main__":
    common.main(install=plain.install, producer=producer, worker=worker)
