"""Holdfast inside a FastAPI application: lifespan, tasks in the session of a request, dashboard, waiting."""

import html
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from types import FrameType
from typing import Annotated, Any, ParamSpec, TypeVar, Unpack

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast._connections.wait_ticket import WAIT_TTL, issue, wait_url
from holdfast.app import App
from holdfast.errors import InvalidArgument
from holdfast.handle import Handle
from holdfast.options import Options, check_duration
from holdfast.server import create_app
from holdfast.server.security import HEADERS, LOCAL_HOSTS
from holdfast.task import BoundTask, Task

__all__ = ["Holdfast", "InTransaction", "in_transaction"]

P = ParamSpec("P")
R = TypeVar("R")
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{static}/icon.svg">
<script src="{static}/holdfast.js" defer></script>
<script src="{static}/wait_page.js" defer></script>
<main data-wait="{wait}" data-then="{then}">
<h1>{title}</h1>
<p><progress aria-label="Progress"></progress></p>
<p role="status">Waiting …</p>
<noscript><p>This page needs JavaScript to wait for the result.</p></noscript>
</main>
</html>
"""


class Holdfast:
    """The HTTP side of Holdfast in a FastAPI application: dashboard, API and waiting, below one prefix.

    `hosts` are the host names that clients use; by default those of HOLDFAST_WEB_HOSTS and of this machine.
    None leaves the check to the application.
    """

    def __init__(
        self, app: App, *, prefix: str = "/holdfast", hosts: Iterable[str] | None = (), login: bool = True
    ) -> None:
        if not prefix.startswith("/") or prefix.endswith("/"):
            raise InvalidArgument(f"prefix is {prefix!r}", hint="Begin it with / and do not end it so.")
        self.app = app
        self.prefix = prefix
        self._hosts = None if hosts is None else tuple(hosts)
        self._login = login
        self._site: FastAPI | None = None
        self._web: FastAPI | None = None

    @property
    def site(self) -> FastAPI:
        """The application that is mounted. Built at first use: its settings are read then."""
        if self._site is None:
            hosts = self._hosts
            if hosts == ():
                hosts = (*self.app.settings.web_hosts, *LOCAL_HOSTS)
            self._site = create_app(self.app, hosts=hosts, asks_for_login=self._login)
        return self._site

    def mount(self, web: FastAPI) -> None:
        """Serve dashboard, API and waiting below the prefix."""
        self._web = web
        web.mount(self.prefix, _BelowPrefix(lambda: self.site), name="holdfast")

    @asynccontextmanager
    async def lifespan(self, web: Any) -> AsyncIterator[None]:
        """For `FastAPI(lifespan=…)`: finds the database at the start, and closes all connections at the end.

        Without a database address it starts the embedded PostgreSQL, which takes a moment.
        """
        del web
        await anyio.to_thread.run_sync(lambda: self.app.database_url)
        try:
            async with self.site.router.lifespan_context(self.site):
                with _ending_waits(self.site.state.site.stop_waits):
                    yield
        finally:
            self.app.close()

    def lifespan_with(self, own: Lifespan) -> Lifespan:
        """The same around a lifespan of the application, whose state is passed on."""

        @asynccontextmanager
        async def both(web: Any) -> AsyncIterator[Any]:
            async with self.lifespan(web), own(web) as state:
                yield state

        return both

    def wait_path(self, request: Request, handle: Handle[Any], ttl: float | timedelta = WAIT_TTL) -> str:
        """The path at which the page of this request can wait for the task, and for no other.

        The transaction that enqueued the task has to be committed before the page begins to wait.
        """
        secrets = self.app.settings.web_secrets
        ticket = issue(secrets, handle.task_id, check_duration("ttl", ttl), time.time())
        return wait_url(self._root(request), handle.task_id, ticket)

    def waiting_page(
        self,
        request: Request,
        handle: Handle[Any],
        *,
        title: str = "One moment",
        then: str = "",
        ttl: float | timedelta = WAIT_TTL,
    ) -> HTMLResponse:
        """A page that waits for the task on one connection, with a progress bar.

        It then opens the address `then`, or shows the result.
        """
        parts = {
            "title": title,
            "then": then,
            "wait": self.wait_path(request, handle, ttl),
            "static": f"{self._root(request)}/static",
        }
        page = _PAGE.format(**{name: html.escape(text) for name, text in parts.items()})
        return HTMLResponse(page, headers={**HEADERS, "Cache-Control": "no-store"})

    def _root(self, request: Request) -> str:
        """The prefix as the browser sees it, below the root_path of a proxy."""
        outer = request.scope.get("root_path", "")
        if request.scope.get("app") is not self._web:  # an application that is mounted beside this one
            outer = request.scope.get("app_root_path", outer)
        return f"{str(outer).rstrip('/')}{self.prefix}"


class InTransaction:
    """Enqueues in a transaction: `await queue(ship, key="order-7").aenqueue(7)`."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    def __call__(
        self, task: Task[P, R, Any] | BoundTask[P, R], **options: Unpack[Options]
    ) -> BoundTask[P, R]:
        """The task with these options, in this transaction."""
        return task.using(**{**options, "tx": self.tx})


def in_transaction(get_tx: Callable[..., Any]) -> Callable[..., InTransaction]:
    """A dependency that enqueues in the session or connection of another dependency.

    FastAPI calls a dependency once per request, so it is the session that the endpoint uses.
    """

    def dependency(tx: Annotated[Any, Depends(get_tx)]) -> InTransaction:
        return InTransaction(tx)

    return dependency


@contextmanager
def _ending_waits(stop_waits: Callable[[], None]) -> Iterator[None]:
    """End open waits on SIGINT and SIGTERM: a server would wait for them before it shuts down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def received(number: int, frame: FrameType | None) -> None:
        stop_waits()
        then = before[signal.Signals(number)]
        if callable(then):
            then(number, frame)

    chained = [number for number, then in before.items() if callable(then)]
    for number in chained:
        signal.signal(number, received)
    try:
        yield
    finally:
        for number in chained:
            signal.signal(number, before[number])


class _BelowPrefix:
    """Passes requests on with their full path.

    A proxy may remove its own prefix from the path and name it in root_path. Starlette then finds the
    mounted application, but the application itself would not find its routes.
    """

    def __init__(self, find: Callable[[], ASGIApp]) -> None:
        self._find = find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root, path = scope.get("root_path", ""), scope["path"]
            if path != root and not path.startswith(f"{root}/"):
                scope = {**scope, "path": f"{scope.get('app_root_path', '')}{path}"}
        await self._find()(scope, receive, send)
