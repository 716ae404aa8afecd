"""For tests of attacks: a secret, a task that does not exist, and what the server answers to an attempt."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from support.engine import Connection

CANARY = "canary-7f3a"
UNKNOWN = UUID("00000000-0000-7000-8000-000000000000")


def error_of(conn: Connection, query: str, parameters: Any = ()) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(query.encode(), parameters)
    return caught.value
