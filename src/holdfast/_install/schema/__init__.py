"""Installs and upgrades the engine's SQL in a database, or prints it as a script for psql."""

from holdfast._install.schema.migration import Migration, install_test_clock, migrate, plan
from holdfast._install.schema.migration_steps import Choice, script
from holdfast._install.schema.sources import Sources

__all__ = [
    "SCHEMA_VERSION",
    "Choice",
    "Migration",
    "Sources",
    "install_test_clock",
    "migrate",
    "plan",
    "script",
]

SCHEMA_VERSION = Sources().version
