"""The executors of a worker, by the name that a task asks for. The worker itself runs those of `python`."""

from collections.abc import Callable, Mapping
from functools import partial

from holdfast._telemetry.logs import Log
from holdfast._worker.attempt import Reporter
from holdfast._worker.executor import Executor
from holdfast._worker.jobs import Job
from holdfast._worker.origin import find_origin
from holdfast._worker.subscription import WorkerApp, serves_messages
from holdfast._workflows.journal import Journal
from holdfast.isolation.child_executor import ChildExecutor
from holdfast.isolation.command import CommandExecutor
from holdfast.isolation.spawner_client import SpawnerClient
from holdfast.messages.message_executor import MessageExecutor
from holdfast.messages.message_plan import compose_email, compose_sms
from holdfast.messages.providers import email_provider, sms_provider
from holdfast.processes.database_function import DatabaseFunctions, DbFunctionExecutor, Settled
from holdfast.settings import Settings

MAX_CONNECTIONS = 50


def isolated_executors(
    *,
    app: WorkerApp,
    worker_id: str,
    settings: Settings,
    send_progress: Callable[[], None],
    record_killed: Callable[[Job, str], None],
    open_journal: Callable[[Job], Journal],
    max_result_bytes: Callable[[], int],
    log: Log,
) -> Mapping[str, Executor[Job]]:
    """Those that run tasks in child processes."""
    spawner = SpawnerClient()
    in_children = {
        name: ChildExecutor(
            worker_id=worker_id,
            spawner=spawner,
            find_origin=lambda: find_origin(app, app.origin),
            starts_early=any(handler.executor == name for handler in app.handlers.values()),
            settings=settings,
            send_progress=send_progress,
            record_killed=record_killed,
            open_journal=open_journal,
            max_result_bytes=max_result_bytes,
            log=log,
            on_ray=name == "ray",
        )
        for name in ("process", "ray")
    }
    return {
        **in_children,
        "command": CommandExecutor(spawner=spawner, settings=settings, record_killed=record_killed, log=log),
    }


def database_executors(
    *, url: str, worker_id: str, settings: Settings, reporter: Reporter, settled: Settled, log: Log
) -> Mapping[str, Executor[Job]]:
    """Those that call functions in the database, some of them to send messages.

    A worker that serves the queue of messages needs providers that can be used: this raises
    ConfigurationError before it has claimed anything. Any other opens one for the first task that needs it.
    """
    connections = settings.function_connections or min(settings.worker_concurrency, MAX_CONNECTIONS)
    functions = DatabaseFunctions(url, worker_id, connections, reporter.write)
    # A pool of its own, so that a message does not wait for functions that take long.
    sending = DatabaseFunctions(url, worker_id, connections, reporter.write)
    ours = settings.model_copy(update={"database_url": url})
    email, sms = (
        MessageExecutor(
            open_provider=partial(open_provider, ours),
            compose=compose,
            functions=sending,
            settled=settled,
            log=log,
        )
        for open_provider, compose in ((email_provider, compose_email), (sms_provider, compose_sms))
    )
    if serves_messages(settings):
        for executor in (email, sms):
            executor.connected()
    return {"db_function": DbFunctionExecutor(functions, settled, log), "email": email, "sms": sms}
