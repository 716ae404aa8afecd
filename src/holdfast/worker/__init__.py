"""The worker: claims tasks, runs their handlers, settles how they ended. One small file per loop."""

import asyncio
import signal
from typing import Any

from holdfast.postgres import resolve_database_url
from holdfast.schema import migrate
from holdfast.settings import Settings
from holdfast.worker.logs import configure
from holdfast.worker.metrics import Metrics, serve
from holdfast.worker.worker import Registered, Worker

__all__ = ["Worker", "run"]


def run(app: Registered, *, settings: Settings | None = None, **options: Any) -> int:
    """Run a worker in this process until it is signalled; answers the exit code."""
    settings = settings or Settings.load(**options)
    url = resolve_database_url(settings)
    if settings.database_url is None:
        migrate(url)
    configure(settings.log_format, settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(app, url, settings))


async def _run(app: Registered, url: str, settings: Settings) -> int:
    metrics = Metrics()
    served = None if settings.metrics_port is None else serve(metrics, settings.metrics_port)
    worker = Worker(app, url, settings, metrics=metrics)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop, number)
    try:
        return await worker.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        if served is not None:
            served[1].shutdown()


def _loop_factory() -> Any:
    """Take uvloop where it is installed, else what Python has."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop
