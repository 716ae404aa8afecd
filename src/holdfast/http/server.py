"""Serving the application with uvicorn, on an address that is safe to serve it on."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from holdfast.errors import ConfigurationError
from holdfast.http.connection_limit import BACKLOG, ConnectionLimiter, max_connections_allowed
from holdfast.http.protocol import KEEP_ALIVE_SECONDS, ConnectionAcceptor, DeadlineProtocol
from holdfast.http.proxies import TrustedProxies
from holdfast.http.site import Site

GRACE_SECONDS = 10
STUCK_MILLISECONDS = 60_000


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen, and with which certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def public(self) -> bool:
        """Whether others than this machine can reach it."""
        return not all(ipaddress.ip_address(found).is_loopback for found in _addresses(self.host))


class Server(uvicorn.Server):
    """Lets those who wait go when it is asked to stop, instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, stop_waits: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop_waits = stop_waits

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends it in order, the second at once. Uvicorn would raise it again at the end."""
        del sig, frame
        self._stop_waits()
        self.force_exit = self.should_exit
        self.should_exit = True


def check(
    listen: ListenAddress, *, asks_for_login: bool, hosts: tuple[str, ...], proxies: tuple[str, ...] = ()
) -> None:
    """Refuses to let the world in unasked, or to send access tokens over it in the clear."""
    if (listen.certificate is None) != (listen.key is None):
        raise ConfigurationError("TLS needs both --tls-cert and --tls-key")
    if not asks_for_login and (hosts or proxies):
        raise ConfigurationError(
            "--no-login is for this machine only, so it has no other names and no proxy",
            hint="Leave out --no-login, or HOLDFAST_WEB_HOSTS and HOLDFAST_WEB_PROXIES and their options.",
        )
    if proxies and not hosts:
        raise ConfigurationError(
            "behind a proxy it is asked for under the names of the proxy: say which",
            hint="Give --host-name tasks.example.com, or HOLDFAST_WEB_HOSTS.",
        )
    if not listen.public:
        return
    if not asks_for_login:
        raise ConfigurationError(
            f"{listen.host} can be reached by others, and without a login they could do everything",
            hint="Listen on 127.0.0.1, or leave --no-login away.",
        )
    if not hosts:
        raise ConfigurationError(
            f"{listen.host} can be reached by others: say under which names",
            hint="Give --host-name tasks.example.com, or HOLDFAST_WEB_HOSTS.",
        )
    if listen.certificate is None and not proxies:
        raise ConfigurationError(
            f"{listen.host} can be reached by others, and without TLS access tokens can be read on the way",
            hint="Give --tls-cert and --tls-key, or --behind-proxy ADDRESS if a proxy there does TLS.",
        )


def bind(listen: ListenAddress) -> socket.socket:
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
    # Inherited by every connection: one whose reader takes nothing is given up by the kernel.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MILLISECONDS)
    return bound


def make_server(web: FastAPI, listen: ListenAddress) -> Server:
    site: Site = web.state.site
    config = uvicorn.Config(
        web,
        access_log=False,  # addresses may hold tickets
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    config.load()
    most, proxies, tls = (
        max_connections_allowed(site.options.max_connections),
        TrustedProxies(site.options.proxies),
        _tls(listen),
    )
    limiter = ConnectionLimiter(most, max(1, most // 2), proxies.has)

    def accept(**given: Any) -> asyncio.Protocol:
        return ConnectionAcceptor(limiter, tls, lambda: DeadlineProtocol(**given))

    config.http_protocol_class = accept  # type: ignore[assignment] # it is only called
    return Server(config, site.stop_waits)


def _tls(listen: ListenAddress) -> ssl.SSLContext | None:
    """TLS 1.2 with forward secrecy and authenticated encryption, or 1.3, which has nothing else."""
    if listen.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    try:
        context.load_cert_chain(listen.certificate, listen.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificate cannot be used: {error}") from error
    return context


def address_of(listen: ListenAddress, bound: socket.socket) -> str:
    scheme = "http" if listen.certificate is None else "https"
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{scheme}://{host}:{bound.getsockname()[1]}"


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"{host!r} is no address to listen on: {error.strerror}") from error
    return [str(address[0]).partition("%")[0] for *_, address in found]
