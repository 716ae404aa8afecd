"""Units of installation: what a database does without, and what stays."""

from planted.bug import Bug

BUGS = [
    Bug(
        "a unit that is installed is forgotten if it is left out",
        "sql/install.sql",
        "    if _unit.installed and _unit.name = any (_unwanted) then",
        "    if false then",
        "tests/migrations/test_units.py::test_a_unit_that_is_installed_is_not_removed",
    ),
    Bug(
        "the next migration installs what was left out",
        "sql/install.sql",
        "coalesce(_unit.installed, _unit.name <> all (_unwanted))",
        "_unit.name <> all (_unwanted)",
        "tests/migrations/test_units.py::test_a_later_migration_keeps_the_choice_and_says_what_is_missing",
    ),
    Bug(
        "every finish reads a table that a database without events lacks",
        "sql/functions/finish.sql",
        "exists (select from queues.engine_subscription)",
        "exists (select from queues.subscription s where s.engine_events)",
        "tests/migrations/test_units.py::test_every_combination_is_whole_and_has_nothing_of_what_was_left_out",
    ),
    Bug(
        "a schema of somebody else is claimed although its unit is left out",
        "sql/install.sql",
        "  perform pg_catalog.set_config('holdfast.schemas', _schemas::text, true);",
        "  perform pg_catalog.set_config('holdfast.schemas', '{queues,internal,comms}', true);",
        "tests/migrations/test_units.py::test_a_schema_of_somebody_else_is_left_alone_where_its_unit_is_left_out",
    ),
    Bug(
        "a leader looks for processes where there are none",
        "_worker/duties.py",
        "self._installed = self._unit in execute(units.installed_units())",
        "self._installed = True",
        "tests/worker/test_units.py",
    ),
]
