"""The worker: claims tasks, runs their handlers, settles how they ended. One small file per loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from holdfast.postgres import resolve_database_url
from holdfast.schema import migrate
from holdfast.settings import Settings
from holdfast.worker.logs import configure, worker_log
from holdfast.worker.metrics import Metrics, serve
from holdfast.worker.parts import Registered
from holdfast.worker.signals import Signals
from holdfast.worker.startup import check_application, check_providers, check_settings
from holdfast.worker.subscription import subscribed
from holdfast.worker.supervised import end_with_parent, is_supervised, tell
from holdfast.worker.worker import Worker

__all__ = ["Worker", "run"]

LEFTOVER_SECONDS = 1.0


def run(app: Registered, *, settings: Settings | None = None, **options: Any) -> int:
    """Run a worker in this process until it is signalled; answers the exit code."""
    settings = settings or Settings.load(**options)
    check_settings(settings)
    check_application(app, settings)
    configure(settings.log_format, settings.log_level)
    end_with_parent()
    url = resolve_database_url(settings)
    if settings.database_url is None:
        migrate(url)
    loop = _new_loop()
    try:
        return _run_to_the_end(loop, loop.create_task(_run(app, url, settings)))
    finally:
        _close(loop)


def _run_to_the_end(loop: asyncio.AbstractEventLoop, worker: "asyncio.Task[int]") -> int:
    """A task that a handler started and that calls sys.exit stops the loop. It goes on where it was."""
    while True:
        try:
            return loop.run_until_complete(worker)
        except (SystemExit, KeyboardInterrupt) as error:
            if worker.done():
                raise
            worker_log("").error("exit_refused", error=repr(error), why="only a signal ends a worker")


async def _run(app: Registered, url: str, settings: Settings) -> int:
    settings = subscribed(app, settings)
    await check_providers(settings.model_copy(update={"database_url": url}))
    metrics = Metrics()
    worker = Worker(app, url, settings, metrics=metrics, owns_process=True)
    with (
        _served(metrics, settings.metrics_port, worker.worker_id),
        Signals(worker, settings.grace, supervised=is_supervised()).installed(),
    ):
        telling = asyncio.create_task(_tell_when_ready(worker))
        try:
            return await worker.run()
        finally:
            telling.cancel()
            tell("STOPPING=1")


@contextlib.contextmanager
def _served(metrics: Metrics, port: int | None, worker_id: str) -> Any:
    if port is None:
        yield
        return
    served, stop = serve(metrics, port)
    worker_log(worker_id).info("metrics_served", port=served)
    try:
        yield
    finally:
        stop()


async def _tell_when_ready(worker: Worker) -> None:
    await worker.ready.wait()
    tell("READY=1")


def _new_loop() -> asyncio.AbstractEventLoop:
    """Take uvloop where it is installed, else what Python has."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - an extra

        factory = uvloop.new_event_loop
    return factory()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Do not wait for what handlers have left behind: tasks that refuse to end, threads that hang."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=LEFTOVER_SECONDS))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
