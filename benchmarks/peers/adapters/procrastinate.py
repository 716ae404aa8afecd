# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.peers.adapters import common


def application(connector: Any) -> tuple[Any, Any]:
    app = App(connector=connector)
    hit = common.hits_of_worker() if common.COMMAND == "worker" else None

    @app.task(name="noop", queue="default")
    async def noop(seq: int) -> None:
        assert hit is not None
        hit(seq)

    return app, noop


def install() -> None:
    app, _ = application(SyncPsycopgConnector(conninfo=common.URL))
    with app.open():
        app.schema_manager.apply_schema()


@contextmanager
def producer() -> Iterator[common.Producer]:
    app, noop = application(SyncPsycopgConnector(conninfo=common.URL, min_size=1, max_size=1))
    with app.open():
        yield common.Producer(
            lambda seq: noop.defer(seq=seq),
            lambda seqs: noop.batch_defer(*({"seq": seq} for seq in seqs)),
        )


async def worker() -> None:
    pool = common.ORDER["pool"]
    app, _ = application(PsycopgConnector(conninfo=common.URL, min_size=pool, max_size=pool))
    async with app.open_async():
        common.ready()
        await app.run_worker_async(concurrency=common.ORDER["concurrency"], wait=True, listen_notify=True)


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker)
