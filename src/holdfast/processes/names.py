"""Which names a process may have: one word is its schema, its queue, its module and in every name."""

import keyword
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from holdfast.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9_]{1,29}", re.ASCII)
_OURS = {"queues", "internal", "comms", "public", "holdfast", "test", "tests", "information_schema"}

# What pg_get_keywords() of PostgreSQL 14 to 18 calls reserved, or not to be the name of a function or a type:
# a schema of such a name would have to be quoted wherever it is written.
SQL_WORDS = frozenset(Path(__file__).with_name("sql_words.txt").read_text(encoding="utf-8").split())


def check_name(name: str) -> None:
    """Refuse what cannot be all of that at once."""
    why = _problem(name)
    if why is not None:
        raise ConfigurationError(
            f"{name!r} cannot be the name of a process: {why}",
            hint="Give a word of 2 to 30 lower-case letters, digits and _, such as shipping.",
        )


def _problem(name: str) -> str | None:
    problems = {
        "it is not a word of lower-case letters, digits and _": not _NAME.fullmatch(name)
        or name.startswith("pg_"),
        "it is a reserved word of SQL": name in SQL_WORDS,
        "it is a reserved word of Python": keyword.iskeyword(name),
        "it is taken by Holdfast or PostgreSQL": name in _OURS,
        "its module would hide one of Python's own": name in sys.stdlib_module_names,
        "its module would hide an installed package": name in packages_distributions(),
    }
    return next((why for why, holds in problems.items() if holds), None)
