"""Compares the engine's schemas of two databases, object by object."""

from pathlib import Path
from typing import Any

import psycopg

_QUERY = Path(__file__).with_name("fingerprint.sql")


def fingerprint(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """Every object with all its properties. Only databases of the same server version can be compared."""
    return dict(connection.execute(_QUERY.read_bytes()).fetchall())
