"""What is in the engine's schemas, object by object, so that two databases can be compared."""

from typing import Any

import psycopg

from holdfast.schema.sources import Sources


def fingerprint(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """Every object with all that distinguishes it. Only databases of the same server version compare."""
    query = Sources().read("install/fingerprint.sql").sql.encode()
    return dict(connection.execute(query).fetchall())
