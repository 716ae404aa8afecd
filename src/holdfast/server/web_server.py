"""The uvicorn server: which addresses it may listen on, TLS, and an orderly shutdown."""

import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from holdfast.errors import ConfigurationError
from holdfast.server.connection_limit import BACKLOG, ConnectionLimiter, max_connections_allowed
from holdfast.server.listener import KEEP_ALIVE_SECONDS, Listener, RequestDeadlines
from holdfast.server.security import LOCAL_HOSTS, TrustedProxies, without_port
from holdfast.server.site import Site
from holdfast.settings import Settings

GRACE_SECONDS = 10
STUCK_MILLISECONDS = 60_000


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address to listen on, and the TLS certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def public(self) -> bool:
        """Whether other machines can reach it."""
        return not all(ipaddress.ip_address(found).is_loopback for found in _addresses(self.host))


class HttpServer(uvicorn.Server):
    """Ends waiting requests when it shuts down, instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, listener: Listener, stop_waits: Callable[[], None]) -> None:
        super().__init__(config)
        self._listener = listener
        self._stop_waits = stop_waits

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._listener])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal shuts down in order, the second at once. Uvicorn would raise the signal again."""
        del sig, frame
        self._stop_waits()
        self.force_exit = self.should_exit
        self.should_exit = True


def serves_this_machine_only(
    listen: ListenAddress, hosts: Sequence[str], url: str | None, proxies: Sequence[str]
) -> bool:
    """Whether no other machine reaches it, by its address, a proxy, or a name that others know."""
    names = {*hosts, *([urlsplit(url).netloc] if url else [])}
    return not (listen.public or proxies) and {without_port(name) for name in names} <= set(LOCAL_HOSTS)


def check_exposure(
    listen: ListenAddress, *, asks_for_login: bool, hosts: tuple[str, ...], proxies: tuple[str, ...] = ()
) -> None:
    """Raises ConfigurationError if other machines could come in without a login or without TLS."""
    if (listen.certificate is None) != (listen.key is None):
        raise ConfigurationError("TLS needs both --tls-cert and --tls-key")
    if not asks_for_login and (hosts or proxies):
        raise ConfigurationError(
            "--no-login is for this machine only and excludes host names and proxies",
            hint="Remove --no-login, or remove HOLDFAST_WEB_HOSTS, HOLDFAST_WEB_PROXIES and their options.",
        )
    if proxies and not hosts:
        raise ConfigurationError(
            "a server behind a proxy needs the host names that clients use",
            hint="Set --host-name tasks.example.com, or HOLDFAST_WEB_HOSTS.",
        )
    if not listen.public:
        return
    if not asks_for_login:
        raise ConfigurationError(
            f"other machines can reach {listen.host}, and without a login they could do everything",
            hint="Listen on 127.0.0.1, or remove --no-login.",
        )
    if not hosts:
        raise ConfigurationError(
            f"other machines can reach {listen.host}, so the server needs the host names that clients use",
            hint="Set --host-name tasks.example.com, or HOLDFAST_WEB_HOSTS.",
        )
    if listen.certificate is None and not proxies:
        raise ConfigurationError(
            f"other machines can reach {listen.host}, and without TLS access tokens could be read in transit",
            hint="Set --tls-cert and --tls-key, or --behind-proxy ADDRESS if a proxy terminates TLS.",
        )


def bind(listen: ListenAddress, settings: Settings) -> Listener:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.create_server(
            (address[0], listen.port), family=family, backlog=BACKLOG, reuse_port=False
        )
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror}",
            hint="Choose another --port, or set HOLDFAST_WEB_PORT.",
        ) from error
    # Inherited by every connection: the kernel closes those whose client acknowledges nothing.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MILLISECONDS)
    maximum = max_connections_allowed(settings.web_max_connections)
    proxies = TrustedProxies(settings.web_proxies)
    return Listener(bound, ConnectionLimiter(maximum, max(1, maximum // 2), proxies.has))


def make_server(web: FastAPI, listen: ListenAddress, listener: Listener) -> HttpServer:
    site: Site = web.state.site
    config = uvicorn.Config(
        RequestDeadlines(web, listener),
        loop="asyncio",  # another would not ask the listener
        http="h11",  # limits the head of a request
        ws="none",
        access_log=False,  # URLs may contain tickets
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_notify=0,  # every second
        callback_notify=listener.limiter.drop_overdue,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
        ssl_ciphers="ECDHE+AESGCM:ECDHE+CHACHA20",  # forward secrecy and authenticated encryption
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificate cannot be used: {error}") from error
    return HttpServer(config, listener, site.stop_waits)


def address_of(listen: ListenAddress, bound: socket.socket) -> str:
    scheme = "http" if listen.certificate is None else "https"
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{scheme}://{host}:{bound.getsockname()[1]}"


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host!r}: {error.strerror}") from error
    return [str(address[0]).partition("%")[0] for *_, address in found]
