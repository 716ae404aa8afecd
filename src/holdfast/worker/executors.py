"""The executors that a worker has besides its own event loop and threads."""

from collections.abc import Callable, Mapping

from holdfast.executors.origin import Origin
from holdfast.executors.spawner_client import SpawnerClient
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.settings import Settings
from holdfast.worker.command import CommandExecutor
from holdfast.worker.executor import Executor
from holdfast.worker.isolated import ProcessExecutor
from holdfast.worker.reporting import Reporter, RunEnds


def build_executors(
    *,
    worker_id: str,
    handlers: Mapping[str, Handler],
    find_origin: Callable[[], Origin | None],
    settings: Settings,
    reporter: Reporter,
    ends: RunEnds,
    tell_progress: Callable[[], None],
    log: Log,
) -> Mapping[str, Executor]:
    """By the name that a task asks for."""
    spawner = SpawnerClient()
    return {
        "process": ProcessExecutor(
            worker_id=worker_id,
            spawner=spawner,
            find_origin=find_origin,
            wanted=any(handler.executor == "process" for handler in handlers.values()),
            settings=settings,
            ends=ends,
            reporter=reporter,
            tell_progress=tell_progress,
            log=log,
        ),
        "command": CommandExecutor(spawner=spawner, settings=settings, ends=ends, reporter=reporter, log=log),
    }
