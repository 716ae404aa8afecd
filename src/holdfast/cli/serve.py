"""holdfast serve: run the HTTP server with the API, waiting and the dashboard."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.app import App
from holdfast.cli.app_loader import load_app
from holdfast.cli.connection import DatabaseUrl
from holdfast.cli.frame import add_commands
from holdfast.cli.setting_options import LogFormat, LogLevel, Text, TlsKey
from holdfast.settings import Settings


def register(app: typer.Typer) -> None:
    add_commands(app, serve)


@dataclass(frozen=True)
class ServerOptions:
    """How the server is reached, and what it logs."""

    web_host: Annotated[
        Text,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Default: only this machine."),
    ] = None
    web_port: Annotated[
        Text, typer.Option("--port", metavar="PORT", help="Port to listen on; 0 chooses a free one.")
    ] = None
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name that clients may use; repeatable.")
    ] = None
    web_url: Annotated[Text, typer.Option("--url", metavar="URL", help="Public URL of the server.")] = None
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain for TLS.")] = None
    tls_key: TlsKey = None
    behind_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="Address or network of a proxy that terminates TLS; repeatable."
        ),
    ] = None
    no_login: Annotated[
        bool, typer.Option("--no-login", help="Do not require a login. Only for this machine.")
    ] = False
    log_format: LogFormat = None
    log_level: LogLevel = None
    database_url: DatabaseUrl = None

    def settings(self) -> dict[str, Any]:
        lists = {
            "web_hosts": ",".join(self.host_name or ()) or None,
            "web_proxies": ",".join(self.behind_proxy or ()) or None,
        }
        return {
            name: value
            for name, value in (vars(self) | lists).items()
            if name in Settings.model_fields and value is not None
        }


def serve(
    application: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="Application whose task types are validated on enqueue."),
    ] = None,
    *,
    options: ServerOptions,
) -> None:
    """Serve the HTTP API, waiting for results and the dashboard until SIGTERM or Ctrl-C."""
    from holdfast._telemetry.logs import configure  # noqa: PLC0415 - as above
    from holdfast.server import create_app  # noqa: PLC0415 - an extra, and other commands start faster
    from holdfast.server.connection_limit import raise_file_limit  # noqa: PLC0415 - as above
    from holdfast.server.security import LOCAL_HOSTS, without_port  # noqa: PLC0415 - as above
    from holdfast.server.web_server import (  # noqa: PLC0415 - as above
        ListenAddress,
        address_of,
        bind,
        check_exposure,
        make_server,
        serves_this_machine_only,
    )

    app = App() if application is None else load_app(application)
    settings = Settings.load(**app.settings.model_dump(exclude_unset=True) | options.settings())
    listen = ListenAddress(settings.web_host, settings.web_port, options.tls_cert, options.tls_key)
    named = tuple(without_port(name) for name in settings.web_hosts)
    check_exposure(listen, asks_for_login=not options.no_login, hosts=named, proxies=settings.web_proxies)
    configure(settings.log_format, settings.log_level)
    raise_file_limit()
    web = create_app(
        app,
        settings=settings,
        hosts=(*named, *LOCAL_HOSTS),
        asks_for_login=not options.no_login,
        is_local=serves_this_machine_only(listen, named, settings.web_url, settings.web_proxies),
    )
    with bind(listen, settings) as listener:
        server = make_server(web, listen, listener)
        typer.echo(f"Serving on {address_of(listen, listener)}", err=True)
        server.run()
