"""Checks business processes against their rules in a live database."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from holdfast._engine.catalog import PROCESSES, query_catalog
from holdfast._engine.processes import try_function
from holdfast.errors import HoldfastError, NotFound, did_you_mean
from holdfast.processes.rules import Finding, ProcessDefinition, ProcessRules


def find_processes(connection: psycopg.Connection[Any], name: str | None) -> list[ProcessDefinition]:
    """All processes, those of a schema, or the one with a name such as comms.send_email."""
    found = [ProcessDefinition(**row) for row in query_catalog(connection, PROCESSES)]
    if name is None:
        return found
    wanted = [one for one in found if name in (one.schema, f"{one.schema}.{one.stem}", str(one))]
    if not wanted:
        raise NotFound(f"there is no process {name!r}{did_you_mean(name, map(str, found))}")
    return wanted


def check_process(connection: psycopg.Connection[Any], process: ProcessDefinition) -> list[Finding]:
    """Return the violations. Changes nothing. `connection` must be in autocommit mode."""
    rules = ProcessRules(connection, process)
    found = list(rules.findings())
    return found + [
        finding
        for row in rules.handlers
        if row["takes_jsonb"]
        for finding in _check_envelope(connection, process, row["name"], found)
    ]


def _check_envelope(
    connection: psycopg.Connection[Any], process: ProcessDefinition, name: str, found: list[Finding]
) -> Iterator[Finding]:
    """Call a handler with an empty payload, as a worker does, and roll back."""
    full = f"{process.schema}.{name}"
    if any(finding.object.startswith(f"{full}(") for finding in found):
        return  # the runner would refuse to call it; the finding already says why
    try:
        envelope = try_function(connection, full, {})
    except HoldfastError as error:
        envelope = f"{error}"
    valid = (
        isinstance(envelope, dict)
        and envelope.get("success") is False
        and envelope.get("validation_failure_message")
    )
    if not valid:
        fix = f"return a validation failure for an empty payload; it returned {json.dumps(envelope)[:200]}"
        yield Finding(str(process), full, "handlers return an envelope", fix)
