"""Where the database is: DATABASE_URL, or an embedded server that is started."""

import os
import sys
from collections.abc import Callable

from holdfast.errors import ConfigurationError
from holdfast.settings import WITHHELD, Settings


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - users must learn where their data is stored


def resolve_database_url(settings: Settings, echo: Callable[[str], None] = _say) -> str:
    """Return DATABASE_URL if it is set; otherwise start the embedded server and say so."""
    if settings.database_url:
        return settings.database_url
    if "DATABASE_URL" in os.environ.get(WITHHELD, "").split(","):
        raise ConfigurationError(
            "a task in a child process does not get the worker's DATABASE_URL",
            hint="To let its handlers use the database, set HOLDFAST_PROCESS_ENV=DATABASE_URL.",
        )
    from holdfast._install.postgres.embedded_server import EmbeddedServer  # noqa: PLC0415 - with a DATABASE_URL, it is not needed
    from holdfast._install.postgres.installation import EMBEDDED_VERSION  # noqa: PLC0415 - with a DATABASE_URL, it is not needed

    echo(f"No DATABASE_URL: using the embedded PostgreSQL {EMBEDDED_VERSION} in {settings.home}")
    return EmbeddedServer(settings.home).start()
