"""holdfast serve: run the HTTP server with the API, waiting and the dashboard."""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.app import App
from holdfast.cli.app_loader import load_app
from holdfast.cli.connection import DatabaseUrl
from holdfast.settings import Settings

# Plain text: the settings validate the values and name the variable in errors.
Text = str | None


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    application: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="Application whose task types are validated on enqueue."),
    ] = None,
    *,
    host: Annotated[
        Text, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: only this machine.")
    ] = None,
    port: Annotated[
        Text, typer.Option(metavar="PORT", help="Port to listen on; 0 chooses a free one.")
    ] = None,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name that clients may use; repeatable.")
    ] = None,
    url: Annotated[Text, typer.Option(metavar="URL", help="Public URL of the server.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain for TLS.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")
    ] = None,
    behind_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="Address or network of a proxy that terminates TLS; repeatable."
        ),
    ] = None,
    no_login: Annotated[
        bool, typer.Option("--no-login", help="Do not require a login. Only for this machine.")
    ] = False,
    log_format: Annotated[Text, typer.Option(metavar="FORMAT", help="Log format: console or json.")] = None,
    log_level: Annotated[
        Text, typer.Option(metavar="LEVEL", help="Log level: debug, info, warning or error.")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the HTTP API, waiting for results and the dashboard until SIGTERM or Ctrl-C."""
    from holdfast.http import create_app  # noqa: PLC0415 - an extra, and other commands start faster
    from holdfast.http.connection_limit import raise_file_limit  # noqa: PLC0415 - as above
    from holdfast.http.security import LOCAL_HOSTS, without_port  # noqa: PLC0415 - as above
    from holdfast.http.web_server import (  # noqa: PLC0415 - as above
        ListenAddress,
        address_of,
        bind,
        check_exposure,
        make_server,
        serves_this_machine_only,
    )
    from holdfast.logs import configure  # noqa: PLC0415 - as above

    given = {
        "web_host": host,
        "web_port": port,
        "web_hosts": ",".join(host_name or ()) or None,
        "web_proxies": ",".join(behind_proxy or ()) or None,
        "web_url": url,
        "log_format": log_format,
        "log_level": log_level,
        "database_url": database_url,
    }
    app, settings = _application(application, given)
    listen = ListenAddress(settings.web_host, settings.web_port, tls_cert, tls_key)
    named = tuple(without_port(name) for name in settings.web_hosts)
    check_exposure(listen, asks_for_login=not no_login, hosts=named, proxies=settings.web_proxies)
    configure(settings.log_format, settings.log_level)
    raise_file_limit()
    web = create_app(
        app,
        settings=settings,
        hosts=(*named, *LOCAL_HOSTS),
        asks_for_login=not no_login,
        is_local=serves_this_machine_only(listen, named, settings.web_url, settings.web_proxies),
    )
    server = make_server(web, listen)
    with bind(listen) as bound:
        typer.echo(f"Serving on {address_of(listen, bound)}", err=True)
        server.run(sockets=[bound])


def _application(named: str | None, options: dict[str, Any]) -> tuple[App, Settings]:
    app = App() if named is None else load_app(named)
    given = {name: value for name, value in options.items() if value is not None}
    return app, Settings.load(**app.settings.model_dump(exclude_unset=True) | given)
