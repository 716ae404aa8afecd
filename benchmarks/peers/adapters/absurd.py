# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absurd_sdk import Absurd

from benchmarks.peers.adapters import common


def client() -> Any:
    return Absurd(common.URL, queue_name="noop")


def install() -> None:
    control = Path(sys.executable).with_name("absurdctl")
    subprocess.run([control, "init", "-d", common.URL], check=True)
    absurd = client()
    absurd.create_queue("noop")
    absurd.close()


@contextmanager
def producer() -> Iterator[common.Producer]:
    absurd = client()
    yield common.Producer(lambda seq: absurd.spawn("noop", {"seq": seq}, queue="noop"))
    absurd.close()


def worker() -> None:
    hit = common.hits_of_worker()
    absurd = client()

    @absurd.register_task("noop", queue="noop")
    def noop(params: dict[str, Any], _context: Any) -> None:
        hit(params["seq"])

    signal.signal(signal.SIGTERM, lambda *_: absurd.stop_worker())
    common.ready()
    absurd.start_worker(
        concurrency=common.ORDER["concurrency"],
        batch_size=common.ORDER["batch_size"],
        poll_interval=common.ORDER["poll"],
    )


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker)
