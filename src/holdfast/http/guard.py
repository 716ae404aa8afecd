"""What holds for every request: under which name it may come, and what a browser may do with the answer."""

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http.problem import Problem

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_PROBES = ("/healthz", "/readyz")  # whoever asks for these asks by address

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


class Guard:
    """Around the whole application.

    A page of another site whose name was made to point here would ask under that name: that is refused.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

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

        if not self._may_ask(scope):
            problem = Problem(
                421,
                "this server is not known under that name",
                code="unknown_host",
                hint="Ask for it under one of its names, or add this one to HOLDFAST_WEB_HOSTS.",
            )
            await problem.response()(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _may_ask(self, scope: Scope) -> bool:
        if self._hosts is None or scope["path"].removeprefix(scope.get("root_path", "")) in _PROBES:
            return True
        return without_port(Headers(scope=scope).get("host", "")) in self._hosts


def without_port(host: str) -> str:
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
