"""The units of installation that a database has."""

from holdfast._engine.statement import Statement, sql_function


@sql_function("queues.installed_units")
def installed_units() -> Statement[list[str]]:
    """Core first."""
