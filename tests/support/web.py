"""The HTTP side on a real port, in a thread, with a login that has no more rights than it needs."""

import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from fastapi import FastAPI
from psycopg.conninfo import make_conninfo

from holdfast import App
from holdfast._engine import Engine, access
from holdfast.server import create_app
from holdfast.server.access import hash_of, new_token
from holdfast.server.security import LOCAL_HOSTS
from holdfast.server.site import Site
from holdfast.server.web_server import HttpServer, ListenAddress, address_of, bind, make_server
from holdfast.settings import Settings
from support.database import Database

LOGIN = "holdfast_web_login"
SECRET = secrets.token_hex(32)
TRUST = ssl.create_default_context()  # made once: it reads every authority there is


def web_dsn(database: Database) -> str:
    """Of a login as docs/reference/http.md asks for it."""
    return dsn_of(database, LOGIN, "holdfast_operator", "holdfast_client")


def dsn_of(database: Database, login: str, *roles: str) -> str:
    """Of a login with these roles, made where it is not there yet."""
    with psycopg.connect(database.server.url("postgres"), autocommit=True) as admin:
        if admin.execute("select from pg_roles where rolname = %s", [login]).fetchone() is None:
            admin.execute(f"create role {login} login in role {', '.join(roles)}")
            database.map_logins()
    return make_conninfo(database.dsn, user=login)


@contextmanager
def grants(database: Database, login: str, role: str) -> Iterator[None]:
    """For a while."""
    admin = database.connect()
    admin.execute(f"grant {role} to {login}")
    try:
        yield
    finally:
        admin.execute(f"revoke {role} from {login}")


@dataclass
class Web:
    """A running server, and clients for it."""

    database: Database
    url: str
    application: FastAPI
    site: Site
    engine: Engine
    server: HttpServer
    tokens: dict[tuple[str, ...], str] = field(default_factory=dict)
    clients: dict[tuple[str, ...], httpx.Client] = field(default_factory=dict)

    def token(self, *scopes: str) -> str:
        if scopes not in self.tokens:
            token = new_token()
            self.engine.run(access.create_token(f"test {' '.join(scopes)}", scopes, hash_of(token)))
            self.tokens[scopes] = token
        return self.tokens[scopes]

    def client(self, *scopes: str) -> httpx.Client:
        """With a token of these scopes, or without any."""
        if scopes not in self.clients:
            headers = {"Authorization": f"Bearer {self.token(*scopes)}"} if scopes else {}
            self.clients[scopes] = httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=TRUST)
        return self.clients[scopes]

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


@contextmanager
def serving(
    database: Database,
    *,
    app: App | None = None,
    listen: ListenAddress | None = None,
    certificate: tuple[Path, Path] | None = None,
    asks_for_login: bool = True,
    hosts: tuple[str, ...] = (),
    **settings: Any,
) -> Iterator[Web]:
    chosen = Settings.load(**{"database_url": web_dsn(database), "web_secret": SECRET} | settings)
    listen = listen or ListenAddress("127.0.0.1", 0, *(certificate or (None, None)))
    with bind(listen, chosen) as listener:
        url = address_of(listen, listener)
        where = app or App(settings=chosen)
        chosen = chosen.model_copy(update={"web_url": url})
        web = create_app(where, settings=chosen, asks_for_login=asks_for_login, hosts=(*LOCAL_HOSTS, *hosts))
        server = make_server(web, listen, listener)
        thread = threading.Thread(target=server.run, name="web")
        thread.start()
        running = Web(database, url, web, web.state.site, Engine(database.connect()), server)
        try:
            with socket.create_connection(listener.getsockname()[:2]):
                yield running
        finally:
            running.close()
            server.handle_exit(0, None)
            thread.join()
