"""The ASGI application, put together."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast import __version__
from holdfast.app import App
from holdfast.comms.delivery_reports import report_readers
from holdfast.connections.session import DatabaseAddress
from holdfast.errors import ConfigurationError
from holdfast.http import api, probes
from holdfast.http.openapi import describe
from holdfast.http.pages import add_pages, respond
from holdfast.http.problem import explain_with_problems
from holdfast.http.security import LOCAL_HOSTS, SecurityMiddleware
from holdfast.http.site import Site, SiteOptions
from holdfast.settings import Settings

DESCRIPTION = """
Enqueue tasks, look at them, act on them, and wait for their results.

Errors are problem+json (RFC 9457). Their `code` is the engine's own where the engine refused.
"""


def create_app(
    where: App | str | None = None,
    *,
    settings: Settings | None = None,
    hosts: Iterable[str] | None = LOCAL_HOSTS,
    asks_for_login: bool = True,
) -> FastAPI:
    """The whole HTTP side as an ASGI application, to be served or mounted.

    `where` is an application, whose tasks are then known with their arguments, or the address of a database.
    `hosts` are the names under which it may be asked for; None leaves that check to whoever mounts it.
    Without `asks_for_login` every page and program that can reach it may do everything: for one's own machine
    only, and only under its own names, so that no page of another site can ask.
    """
    if not asks_for_login and (hosts is None or not set(hosts) <= set(LOCAL_HOSTS)):
        raise ConfigurationError(
            "without a login, it can only be asked for under the names of this machine",
            hint="Leave hosts away, or let people log in.",
        )
    app = where if isinstance(where, App) else App(where, settings=settings)
    settings = settings or app.settings
    elsewhere = settings.database_url
    options = SiteOptions(
        hosts=None if hosts is None else tuple(hosts),
        asks_for_login=asks_for_login,
        secrets=settings.web_secrets,
        url=settings.web_url,
        proxies=settings.web_proxies,
        max_waits=settings.web_max_waits,
        report_readers=report_readers(settings),
        max_connections=settings.web_max_connections,
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
        docs_url=None,  # these would load a page's scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    web.state.site = site
    explain_with_problems(web, respond)
    web.include_router(api.router)
    web.include_router(probes.router)
    add_pages(web)
    options = site.options
    web.add_middleware(SecurityMiddleware, hosts=options.hosts, proxies=options.proxies, url=options.url)
    web.openapi = lambda: describe(web)  # type: ignore[method-assign] # how FastAPI wants it to be replaced
    return web
