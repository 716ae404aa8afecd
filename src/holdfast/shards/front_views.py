"""The views of a front, as SQL: unions over the foreign tables of its shards."""

from collections.abc import Iterator

from holdfast.shards.catalog import View
from holdfast.shards.front_functions import declared, merge_columns


def foreign_tables(view: View, shards: list[str]) -> Iterator[str]:
    """One per shard. Views read them with the rights of the caller, and so do the shards."""
    schema, _, name = view.name.partition(".")
    for shard in shards if view.route.kind == "each" else shards[:1]:
        table = _table(view, shard)
        yield (
            f"create foreign table {table} ({declared(view.columns)}) server holdfast_{shard} "
            f"options (schema_name '{schema}', table_name '{name}')"
        )
        if view.grantees:
            yield f"grant select on {table} to {', '.join(view.grantees)}"


def view_statement(view: View, shards: list[str]) -> str:
    merge = (view.route.merge or "").replace("{first}", f"'{shards[0]}'")
    plain = not merge and not view.is_row_type and view.route.kind == "each" and not view.has("shard")
    columns = ", ".join(f'"{name}"' for name, _ in view.columns)
    named = ", '{}'::text as shard" if plain or "answer.shard" in merge else ""
    parts = [
        f"select {columns}{named.format(shard)} from {_table(view, shard)}"
        + (f" where holdfast_front.is_used({number})" if view.route.kind == "each" else "")
        for number, shard in enumerate(shards if view.route.kind == "each" else shards[:1])
    ]
    query = " union all ".join(parts)
    if merge:
        selected, rest = merge_columns(merge, view.columns)
        query = f"select {selected} from ({query}) answer {rest}"
    return f"create view {view.name} with (security_invoker) as {query}"


def view_grants(view: View) -> Iterator[str]:
    if view.grantees:
        yield f"grant select on {view.name} to {', '.join(view.grantees)}"


def _table(view: View, shard: str) -> str:
    return f'holdfast_front."{shard}_{view.name.replace(".", "_")}"'
