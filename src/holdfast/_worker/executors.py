"""Finds executors by the name that a task asks for. The worker itself runs those of `python`."""

from collections.abc import Sequence

from holdfast._install import entry_points
from holdfast._worker.executor import CannotStart, Executor, ExecutorWorker
from holdfast._worker.handler import Handler
from holdfast._worker.subscription import WorkerApp, serves, serves_messages, subscribed
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings


class Executors:
    """The executors of one worker. Each is imported when it is needed for the first time."""

    def __init__(self, worker: ExecutorWorker) -> None:
        """Raises ConfigurationError if one that the application or the settings need cannot be used."""
        self._worker = worker
        self._opened: dict[str, Executor] = {}
        self._refused: dict[str, str] = {}
        for name in _needed(worker.settings, worker.app):
            self._open(name)

    async def prepare(self) -> None:
        for executor in self._opened.values():
            await executor.prepare()

    def find(self, name: str) -> Executor:
        """Raises CannotStart if this worker does not have it: another may."""
        if name not in self._opened and name not in self._refused:
            try:
                self._open(name)
            except ConfigurationError as error:
                self._refused[name] = str(error)
        if name in self._refused:
            raise CannotStart("executor_not_available", self._refused[name])
        return self._opened[name]

    async def close(self) -> None:
        for executor in self._opened.values():
            await executor.close()

    def _open(self, name: str) -> None:
        self._opened[name] = _class_of(name)(self._worker)


def check_executors(settings: Settings, app: WorkerApp | None = None) -> None:
    """Raise ConfigurationError for the first setting or handler that cannot be used on this machine."""
    for name, handlers in _needed(settings, app).items():
        _class_of(name).check(settings, app, handlers)


def _class_of(name: str) -> type[Executor]:
    points = entry_points.installed(entry_points.EXECUTORS)
    if name not in points:
        raise ConfigurationError(
            f"this worker cannot run tasks of executor {name}: no installed package has it",
            hint=f"Installed: python, {', '.join(sorted(points))}.",
        )
    found: type[Executor] = entry_points.load(points[name], "executor")
    return found


def _needed(settings: Settings, app: WorkerApp | None) -> dict[str, Sequence[Handler]]:
    """The executors that are needed from the start, with the handlers that declare them."""
    found: dict[str, list[Handler]] = {name: [] for name, is_set in _set_up(settings).items() if is_set}
    if app is not None:
        settings = subscribed(app, settings)
        for handler in app.handlers.values():
            if handler.executor != "python" and serves(settings, handler):
                found.setdefault(handler.executor, []).append(handler)
    return dict(found)


def _set_up(settings: Settings) -> dict[str, bool]:
    """Whether there are settings of an executor, which are checked even if no handler names it."""
    given = settings.model_fields_set
    sends = serves_messages(settings)
    return {
        "process": settings.process_user is not None,
        "command": bool(settings.commands),
        "email": sends or not given.isdisjoint(("email_sender", "templates")),
        "sms": sends or "sms_sender" in given,
    }
