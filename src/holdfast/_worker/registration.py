"""Registration: what a worker tells the database about itself, its application and its environment."""

import asyncio
import contextlib
import functools
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import Statement, leases, schedules, steps, workers
from holdfast._engine.leases import FleetState
from holdfast._engine.roles import advice, missing_grants
from holdfast._telemetry.logs import Log
from holdfast._worker.app_import import Origin, find_origin
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job
from holdfast._worker.leader import Execute
from holdfast._worker.subscription import WorkerApp
from holdfast._workflows.memory import DEFAULT_MAX_RESULT_BYTES
from holdfast.errors import ConfigurationError, HoldfastError, NotAllowed, RequestRefused
from holdfast.settings import Settings

ENVIRONMENT_SECONDS = 5.0
RETIRE_SECONDS = 1.0
REMOVED = "another worker took this one for dead"
_REFERENCE = "ref: "


def schedules_of(app: WorkerApp) -> Statement[list[schedules.Declared]] | None:
    """Declares the schedules of an application, and retires those that it had. None if it never has any."""
    if app.name is not None:
        return schedules.declare_schedules(app.name, app.schedules.values())
    if not app.schedules:
        return None
    raise ConfigurationError(
        f"the application has schedules and no name, which tells whose they are: {', '.join(app.schedules)}",
        hint='Write App(name="shop"), or set HOLDFAST_APP_NAME, and keep that name.',
    )


class Registration:
    """Registers a worker with the types and schedules of its application."""

    def __init__(
        self,
        app: WorkerApp,
        settings: Settings,
        worker_id: str,
        *,
        connection: WorkerConnection,
        open_as_client: Callable[[], WorkerConnection],
        log: Log,
    ) -> None:
        """Schedules are declared as client: a worker's other connections have no right to enqueue."""
        self._app = app
        self._settings = settings
        self._worker_id = worker_id
        self._connection = connection
        self._open_as_client = open_as_client
        self._log = log
        self.max_result_bytes = DEFAULT_MAX_RESULT_BYTES

    async def register(self) -> None:
        try:
            self.max_result_bytes = await self._connection.run(self.statement)
        except NotAllowed as error:
            await self._connection.explain(error, "worker")
            raise
        await self._register_types()
        await self._record_changes()
        await self._declare_schedules()

    async def _record_changes(self) -> None:
        """Runs that are enqueued from now on have these changes; older ones keep their way."""
        for handler in self._app.handlers.values():
            if changes := handler.changes:
                record = functools.partial(steps.record_changes, handler.type, changes)
                await self._connection.run(record)

    def statement(self) -> Statement[int]:
        settings = self._settings
        return workers.register_worker(
            self._worker_id,
            socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=list(settings.worker_queues) or None,
            type_prefixes=list(settings.worker_type_prefixes) or None,
            concurrency=settings.worker_concurrency,
            timeout=settings.worker_timeout,
            heartbeat=settings.heartbeat,
            types=list(self._app.handlers),
        )

    async def record_environment(self) -> None:
        """For people who later ask what ran a task. Nothing depends on it."""
        app = self._app
        try:
            found = await asyncio.to_thread(
                lambda: describe_environment(find_origin(app, app.origin), app.handlers)
            )
            recording = workers.record_environment(self._worker_id, found)
            await self._connection.run(lambda: recording, seconds=ENVIRONMENT_SECONDS)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            self._log.warning("environment_not_recorded", error=str(error))

    async def retire(self, held: Iterable[Job]) -> None:
        """Also give back what it was given and does not hold, or holds and has not begun."""
        begun = [leases.held_json(job.task_id, job.token) for job in held if job.started is not None]
        with contextlib.suppress(HoldfastError):
            retirement = workers.retire_worker(self._worker_id, begun)
            await self._connection.run(lambda: retirement, seconds=RETIRE_SECONDS)

    async def _register_types(self) -> None:
        """For clients that enqueue without this code. A refusal does not stop the worker."""
        registration = workers.register_types(
            [handler.declaration() for handler in self._app.handlers.values()]
        )
        try:
            await self._connection.run(lambda: registration)
        except RequestRefused as error:
            self._log.error("types_refused", error=str(error))

    async def _declare_schedules(self) -> None:
        """A schedule that is refused does not stop the worker. Only the first shard has schedules."""
        app = self._app
        declaration = schedules_of(app)
        if declaration is None:
            return
        connection = self._open_as_client()
        try:
            declared = await connection.run(lambda: declaration)
        except NotAllowed:
            if app.schedules:
                missing = await self._connection.run(lambda: missing_grants(("client",)))
                apply = f"holdfast schedules apply {app.origin or 'MODULE:APP'}"
                self._log.warning(
                    "schedules_not_declared",
                    why="the worker's login lacks the role holdfast_client",
                    hint=f"{advice(missing)} Or run this with the application's login: {apply}",
                )
            return
        except RequestRefused as error:
            self._log.error("schedules_refused", error=str(error))
            return
        finally:
            await connection.close()
        for one in declared:
            if one.verdict == "taken":
                self._log.error(
                    "schedule_name_taken", schedule=one.name, hint="give one of them another name"
                )
            elif one.verdict not in ("unchanged", "elsewhere"):
                self._log.info("schedule_declared", schedule=one.name, verdict=one.verdict)


class StillRegistered:
    """Registers a worker again that others took for dead. An errand of the heartbeat's thread."""

    def __init__(self, statement: Callable[[], Statement[int]], done: Callable[[], None], log: Log) -> None:
        self.due = float("inf")
        self._statement = statement
        self._done = done
        self._log = log

    def run(self, execute: Execute) -> None:
        execute(self._statement())
        self.due = float("inf")
        self._log.warning("registered_again", why=REMOVED)
        self._done()

    def learn(self, state: FleetState, asked: float) -> None:
        del asked
        if not state.registered:
            self.due = 0.0


def describe_environment(origin: Origin | None, handlers: Mapping[str, Handler]) -> dict[str, Any]:
    """Versions, commit and host; no environment variables or arguments, which may hold secrets."""
    module = _module_of(origin, handlers)
    found = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "holdfast": __version__,
        "application": None if origin is None else str(origin),
        **_distribution_of(module),
        "commit": _commit_of(_file_of(module)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _module_of(origin: Origin | None, handlers: Mapping[str, Handler]) -> str | None:
    """The module of the application, or else of its first handler."""
    if origin is not None:
        return origin.module or "__main__"
    return next((handler.function.__module__ for handler in handlers.values()), None)


@functools.cache
def _distribution_of(module: str | None) -> dict[str, str]:
    """The installed package of the module. File lists are searched as text: parsing them takes a second."""
    top, file = (module or "").partition(".")[0], _file_of(module)
    if not top or file is None:
        return {}
    for installed in metadata.distributions(path=[str(parent) for parent in file.absolute().parents]):
        files = "\n" + (installed.read_text("RECORD") or "")
        if f"\n{top}/" in files or f"\n{top}.py," in files:
            return {"package": installed.name, "package_version": installed.version}
    return {}


def _file_of(module: str | None) -> Path | None:
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return None if file is None else Path(file)


def _commit_of(file: Path | None) -> str | None:
    """The commit of the Git checkout that the application is in, if any."""
    for directory in [] if file is None else file.absolute().parents:
        if (directory / ".git").exists():
            try:
                return _head_of(directory / ".git")
            except OSError:
                return None
    return None


def _head_of(git: Path) -> str | None:
    if git.is_file():  # of a worktree or a submodule: it names the real directory
        git = (git.parent / git.read_text().partition("gitdir:")[2].strip()).resolve()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith(_REFERENCE):
        return head
    name = head.removeprefix(_REFERENCE)
    common = git / "commondir"
    shared = (git / common.read_text().strip()).resolve() if common.exists() else git
    for place in (git / name, shared / name):
        if place.exists():
            return place.read_text().strip()
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)
