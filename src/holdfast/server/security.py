"""Checks on every request (host, proxy, origin) and the security headers of every response."""

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.problem import Problem

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_PROBES = ("/healthz", "/readyz")  # requested by IP address, and past the proxy
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send our own forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
HSTS = "max-age=31536000"
_CLOSE = {"Connection": "close"}


class SecurityMiddleware:
    """Wraps the whole application.

    Rejects unknown host names, so that DNS rebinding does not work. Rejects requests that change something if
    they come from a page of another origin, whatever credentials they carry.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] | None,
        proxies: Iterable[str] = (),
        url: str | None = None,
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._proxies = TrustedProxies(proxies)
        self._origin = urlsplit(url or "").netloc.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        direct = scope
        scope = self._proxies.resolve(scope)

        # HSTS for localhost would apply to everything else that this machine ever serves.
        is_local = without_port(Headers(scope=scope).get("host", "")) in LOCAL_HOSTS

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if scope["scheme"] == "https" and not is_local:
                    headers.setdefault("Strict-Transport-Security", HSTS)
            await send(message)

        problem = self._check(scope, direct)
        if problem is not None:
            await problem.response()(scope, receive, send_with_headers)
            return
        with suppress(ClientDisconnect):
            await self._app(scope, receive, send_with_headers)

    def _check(self, scope: Scope, direct: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and (
            "content-length" in headers or scope.get("http_version") == "1.0"
        ):
            # Request smuggling: the proxy may have used one header to find the end, and we the other. One of
            # HTTP/1.0 does not know the second.
            return Problem(400, "send Content-Length without Transfer-Encoding", headers=_CLOSE)
        if is_probe(scope):
            return None
        if self._hosts is not None and without_port(headers.get("host", "")) not in self._hosts:
            return Problem(
                421,
                "this server does not accept requests for this host name",
                code="unknown_host",
                hint="Use one of its host names, or add this one to HOLDFAST_WEB_HOSTS.",
            )
        if self._proxies and scope is direct and not _is_loopback(scope):
            return Problem(
                421,
                "this server accepts requests only through its proxy",
                code="not_through_proxy",
                hint="Send the request to the proxy, or add its address to HOLDFAST_WEB_PROXIES.",
            )
        if scope["method"] not in _SAFE_METHODS:
            return check_origin(headers, self._origin)
        return None


class TrustedProxies:
    """Addresses and networks of the proxies that terminate TLS and set X-Forwarded-For."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ip_network(network, strict=False) for network in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address):
            found = found.ipv4_mapped or found
        return any(found in network for network in self._networks)

    def resolve(self, scope: Scope) -> Scope:
        """The request as the proxy received it: from the client's address, over TLS.

        Each proxy appends the address it has seen to X-Forwarded-For. So the client is the last entry that is
        not a trusted proxy; the client itself may have written the entries before it.
        """
        peer = scope.get("client")
        if peer is None or not self.has(peer[0]):
            return scope
        given = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        hops = [hop.strip() for hop in given if hop.strip()]
        client = peer[0]
        for hop in reversed(hops):
            if not _is_address(hop):
                break
            client = hop
            if not self.has(hop):
                break
        return {**scope, "client": (client, 0), "scheme": "https"}


def check_origin(headers: Headers, own_host: str = "") -> Problem | None:
    """A problem if a page of another origin sent the request. Only browsers send these headers."""
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    own = {headers.get("host", "").lower(), own_host} - {""}
    if site in ("same-origin", "none") and (origin is None or urlsplit(origin).netloc.lower() in own):
        return None
    return foreign_origin()


def foreign_origin() -> Problem:
    return Problem(403, "the request did not come from a page of this server", code="foreign_origin")


def is_probe(scope: Scope) -> bool:
    return scope["path"].removeprefix(scope.get("root_path", "")) in _PROBES


def without_port(host: str) -> str:
    """What follows an address in brackets and is not a port stays: it is another name."""
    host = host.lower()
    if host.startswith("["):
        address, bracket, port = host.partition("]")
        return address + bracket if port == "" or port.startswith(":") else host
    return host.partition(":")[0]


def _is_loopback(scope: Scope) -> bool:
    peer = scope.get("client")
    try:
        return peer is not None and ip_address(peer[0]).is_loopback
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
