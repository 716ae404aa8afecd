"""The units of installation: core, and what a database may do without. Each needs core, and no other."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SQL = Path(__file__).parent
CORE = "core"


@dataclass(frozen=True)
class Unit:
    """Its SQL is `sql/units/NAME.sql`, with what takes its place, and the folder `sql/units/NAME`."""

    name: str
    contains: str
    schemas: tuple[str, ...] = ()
    """The schemas that belong to it alone."""


OPTIONAL = (
    Unit("messages", "e-mail, text messages and business processes", ("comms",)),
    Unit("events", "events, subscriptions and their deliveries, and the inbox"),
    Unit("web", "access tokens and sessions of the HTTP server"),
)
NAMES = tuple(unit.name for unit in OPTIONAL)

_MISSING = re.compile(
    r"(?:function|relation|schema|type) \"?(?P<name>(?:queues|internal|comms)\b[.\w]*)"
    r"\"?(?:\(.*\))? does not exist"
)
_STATED = (
    r"(?m)^create (?:or replace )?(?:unlogged )?(?:function|table|view|type|sequence) ([a-z_]+\.[a-z_]+)"
)


def unit_that_lacks(message: str) -> str | None:
    """The unit to which the name belongs that PostgreSQL has not found, if it is an optional one."""
    found = _MISSING.search(message)
    return _units_of_names().get(found["name"]) if found else None


@lru_cache
def _units_of_names() -> dict[str, str]:
    """Read only after an error: a name is stated once, in the files of its unit."""
    found = {schema: unit.name for unit in OPTIONAL for schema in unit.schemas}
    for unit in OPTIONAL:
        for path in [SQL / f"units/{unit.name}.sql", *(SQL / "units" / unit.name).glob("*.sql")]:
            found |= dict.fromkeys(re.findall(_STATED, path.read_text(encoding="utf-8")), unit.name)
    return found
