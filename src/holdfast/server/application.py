"""The ASGI application: API, probes, dashboard and middleware, put together."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.util import find_spec

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import __version__
from holdfast._connections.session import DatabaseAddress
from holdfast.app import App
from holdfast.errors import ConfigurationError
from holdfast.messages.delivery_reports import report_readers
from holdfast.server import probes
from holdfast.server.api import routes
from holdfast.server.openapi import build_openapi
from holdfast.server.pages.routes import add_pages, render_problem
from holdfast.server.problem import add_problem_handlers
from holdfast.server.security import LOCAL_HOSTS, SecurityMiddleware
from holdfast.server.site import Site, SiteOptions
from holdfast.settings import Settings

DESCRIPTION = """
Enqueue, inspect, cancel and retry tasks, and wait for their results.

Errors are problem+json (RFC 9457). `code` is the error code of the engine where the engine raised the error.
"""


def create_app(
    where: App | str | None = None,
    *,
    settings: Settings | None = None,
    hosts: Iterable[str] | None = LOCAL_HOSTS,
    asks_for_login: bool = True,
    is_local: bool = False,
) -> FastAPI:
    """The HTTP API, waiting and the dashboard as an ASGI application, to serve or to mount.

    `where` is an application, against whose tasks payloads are checked, or a database URL.
    `hosts` are the accepted host names; None leaves that check to the application that mounts this one.
    Without `asks_for_login`, every caller may do everything. That is allowed only under the host names of
    this machine, so that no page of another site can send requests.
    `is_local` says that only this machine can reach the server: values are then shown, unless the setting
    `web_values` says otherwise.
    """
    if not asks_for_login and (hosts is None or not set(hosts) <= set(LOCAL_HOSTS)):
        raise ConfigurationError(
            "without a login, only the host names of this machine are allowed",
            hint="Omit hosts, or set asks_for_login=True.",
        )
    app = where if isinstance(where, App) else App(where, settings=settings)
    settings = settings or app.settings
    elsewhere = settings.database_url
    options = SiteOptions(
        hosts=None if hosts is None else tuple(hosts),
        asks_for_login=asks_for_login,
        shows_values=settings.web_values == "shown" or (settings.web_values == "auto" and is_local),
        secrets=settings.web_secrets,
        url=settings.web_url,
        proxies=settings.web_proxies,
        max_waits=settings.web_max_waits,
        report_readers=report_readers(settings),
        name=settings.web_name,
        trace_url=settings.trace_url,
        log_url=settings.log_url,
    )
    return assemble(Site(DatabaseAddress(lambda: elsewhere or app.database_url), options, app.tasks))


def assemble(site: Site) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with site.opened():
            yield

    web = FastAPI(
        title="Holdfast",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
    )
    web.state.site = site
    add_problem_handlers(web, render_problem)
    web.include_router(routes.router)
    web.include_router(probes.router)
    add_pages(web)
    if find_spec("mcp") is not None:
        web.router.routes.append(Route("/mcp", _LateMcp(site), methods=["POST"], include_in_schema=False))
    options = site.options
    web.add_middleware(SecurityMiddleware, hosts=options.hosts, proxies=options.proxies, url=options.url)
    web.openapi = lambda: build_openapi(web)  # type: ignore[method-assign] # the documented way to replace it
    return web


class _LateMcp:
    """Imports the SDK with the first request: it takes longer than all else that a server loads."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._endpoint: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._endpoint is None:
            from holdfast.server.mcp.server import McpEndpoint  # noqa: PLC0415 - see above

            self._endpoint = McpEndpoint(self._site)
        await self._endpoint(scope, receive, send)
