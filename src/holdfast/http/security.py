"""What holds for every request: from where it may come, and what a browser may do with the answer."""

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http.problem import Problem
from holdfast.http.proxies import TrustedProxies
from holdfast.http.send import SlowReader

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_PROBES = ("/healthz", "/readyz")  # asked for by address, and directly
_READING = ("GET", "HEAD", "OPTIONS")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, a browser sends our own forms with the origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
HSTS = "max-age=31536000"


class SecurityMiddleware:
    """Around the whole application.

    A page of another site whose name was made to point here would ask under that name: that is refused. So is
    a request of another site's page that would change something, whatever lets it in.
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

        # A promise of TLS for localhost would hold for everything else that this machine ever serves.
        is_local = without_port(Headers(scope=scope).get("host", "")) in LOCAL_HOSTS

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if scope["scheme"] == "https" and not is_local:
                    headers.setdefault("Strict-Transport-Security", HSTS)
            await send(message)

        refusal = self._refusal(scope, direct)
        if refusal is not None:
            await refusal.response()(scope, receive, send_guarded)
            return
        with suppress(ClientDisconnect, SlowReader):  # there is nobody to answer
            await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, direct: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may have read one and the server the other: what follows may be a second request.
            return Problem(400, "give Content-Length or Transfer-Encoding, not both", headers=_CLOSE)
        if is_probe(scope):
            return None
        if self._hosts is not None and without_port(headers.get("host", "")) not in self._hosts:
            return Problem(
                421,
                "this server is not known under that name",
                code="unknown_host",
                hint="WaitRequest for it under one of its names, or add this one to HOLDFAST_WEB_HOSTS.",
            )
        if self._proxies and scope is direct and not _is_loopback(scope):
            return Problem(
                421,
                "this server is asked through its proxy only",
                code="not_through_proxy",
                hint="WaitRequest the proxy, or add its address to HOLDFAST_WEB_PROXIES.",
            )
        if scope["method"] not in _READING:
            return foreign_origin(headers, self._origin)
        return None


_CLOSE = {"Connection": "close"}


def foreign_origin(headers: Headers, known: str = "") -> Problem | None:
    """Refuses what a page of another origin has sent. Only browsers say where a request comes from."""
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    own = {headers.get("host", "").lower(), known} - {""}
    if site in ("same-origin", "none") and (origin is None or urlsplit(origin).netloc.lower() in own):
        return None
    return Problem(403, "this did not come from a page of this server", code="foreign_origin")


def is_probe(scope: Scope) -> bool:
    return scope["path"].removeprefix(scope.get("root_path", "")) in _PROBES


def without_port(host: str) -> str:
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _is_loopback(scope: Scope) -> bool:
    peer = scope.get("client")
    try:
        return peer is not None and ip_address(peer[0]).is_loopback
    except ValueError:
        return False
