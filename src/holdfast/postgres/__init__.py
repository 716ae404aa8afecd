"""The embedded PostgreSQL: a real server, unprivileged, reachable through a private Unix socket only."""

import sys
from collections.abc import Callable

from holdfast.postgres.installation import EMBEDDED_VERSION, binaries
from holdfast.postgres.server import EmbeddedServer, ServerStatus
from holdfast.settings import Settings

__all__ = ["EMBEDDED_VERSION", "EmbeddedServer", "ServerStatus", "binaries", "resolve_database_url"]


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - the one line that tells people where their data goes


def resolve_database_url(settings: Settings, echo: Callable[[str], None] = _say) -> str:
    """DATABASE_URL where it is given, else the embedded server, announced in one line and started."""
    if settings.database_url:
        return settings.database_url
    echo(f"No DATABASE_URL: using the embedded PostgreSQL {EMBEDDED_VERSION} in {settings.home}")
    return EmbeddedServer(settings.home).start()
