"""The only Python that names SQL functions and views.

Each module covers one noun: its rows as dataclasses, and functions that build one `Statement` per SQL
function, under the name of that function. `Engine.run` executes a statement on the caller's connection, in
the caller's transaction, and never commits.

The fields of a row have the order of the select list. `Json` fields are decoded on arrival. A field whose
name ends in `_json` stays text: a document that cannot be decoded then affects only the task it belongs to.
"""

from holdfast._engine.statement import AsyncEngine, AsyncPreparedEngine, Engine, PreparedEngine, Statement

__all__ = ["AsyncEngine", "AsyncPreparedEngine", "Engine", "PreparedEngine", "Statement"]
