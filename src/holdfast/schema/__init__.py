"""Installs and upgrades the engine's SQL in a database, or prints it as a script for psql."""

from holdfast.schema.migration import Migration, install_test_clock, migrate, plan
from holdfast.schema.migration_steps import script
from holdfast.schema.sources import Sources

__all__ = [
    "SCHEMA_VERSION",
    "Migration",
    "Sources",
    "install_test_clock",
    "migrate",
    "plan",
    "script",
]

SCHEMA_VERSION = Sources().version
