"""The engine's SQL in a database: install it, upgrade it, print it, compare it."""

from holdfast.schema.fingerprint import fingerprint
from holdfast.schema.migration import Migration, install_test_clock, migrate, plan
from holdfast.schema.script import script
from holdfast.schema.sources import Sources

__all__ = [
    "SCHEMA_VERSION",
    "Migration",
    "Sources",
    "fingerprint",
    "install_test_clock",
    "migrate",
    "plan",
    "script",
]

SCHEMA_VERSION = Sources().version
