"""The functions of a front, as SQL: generated from the catalog of a shard."""

from collections.abc import Iterator

from holdfast.shards.catalog import Catalog, Column, Function

_HANDLE = (
    "get stacked diagnostics _state = returned_sqlstate, _message = message_text, "
    "_detail = pg_exception_detail, _hint = pg_exception_hint;"
)
_DECLARE = "_state text; _message text; _detail text; _hint text;"
# Who acts, and with which role: a server that acts for others (holdfast serve) says so, and shards record it.
_ACTOR = (
    "pg_catalog.current_setting('holdfast.acting_for', true), "
    "pg_catalog.current_setting('holdfast.role', true)"
)
_GIVEN = 3
"""Arguments of a proxy before those of its function: the shard, the actor and the role."""
_REFUSED = """raise exception using errcode = 'QF400',
    message = '{function} works on one shard, and this is a front',
    hint = 'Connect to a shard: holdfast worker --shard NAME, or an address of holdfast shards status.';"""
_MISSING = (
    "raise warning 'shard % cannot be reached, so its part is missing', holdfast_front.shard_name(_shard);"
)
_RETHROW = "perform holdfast_front.rethrow({}, _state, _message, _detail, _hint);"
_KEYS = (("idempotency_key", "key"), ("concurrency_key",), ("shard_key",))
"""The arguments that choose the shard of a new task, each with its names."""
_LOST = "holdfast_front.is_lost(_state)"


def function_statements(catalog: Catalog) -> Iterator[str]:
    """The order is that of their dependencies: row types, proxies, public functions."""
    types = {function.composite: function.columns for function in catalog.functions if function.composite}
    for name, columns in types.items():
        yield f"create type queues.{name} as ({declared(columns)})"
    for function in catalog.functions:
        if function.route.kind == "none":
            continue
        if function.route.kind != "shard":
            yield _proxy(function)
        if function.route.kind == "each":
            yield _each(function)


def public_functions(catalog: Catalog) -> Iterator[str]:
    for function in catalog.functions:
        if function.route.kind != "none":
            yield _public(function)
            yield from _grants(function)


def _proxy(function: Function) -> str:
    """Calls the function on one shard, as the login of the caller."""
    arguments = ", ".join(
        ["a1 integer", "a2 text", "a3 text"]
        + [f"a{n + _GIVEN} {kind}" for n, (_, kind) in enumerate(function.inputs, start=1)]
    )
    return f"""create function {function.proxy}({arguments}) returns {_rows_or_value(function)}
language plproxy as $proxy$
  cluster 'holdfast'; run on a1;
  select {_selected(function)}
  from (select case when $2 <> '' then pg_catalog.set_config('holdfast.acting_for', $2, true) end,
    case when $3 <> '' then pg_catalog.set_config('role', $3, true) end) s(actor, role)
  cross join lateral {function.name}({", ".join(_passed(function))}) c;
$proxy$"""


def _passed(function: Function) -> list[str]:
    passed = [f"${n + _GIVEN}::{kind}" for n, (_, kind) in enumerate(function.inputs, start=1)]
    if passed:  # refers to s, so that the actor is set before the call
        passed[0] = f"case when coalesce(s.actor, s.role, '') is not null then {passed[0]} end"
    return passed


def _selected(function: Function) -> str:
    if function.columns:
        return ", ".join(f'c."{name}"' for name, _ in function.columns)
    return "''::text" if function.result == "void" else "c"


def _rows_or_value(function: Function) -> str:
    if function.columns and not function.result.startswith("SETOF"):
        return f"table ({declared(function.columns)})"
    return "text" if function.result == "void" else function.result


def _call(function: Function, shard: str, replaced: dict[int, str] | None = None) -> str:
    given = [(replaced or {}).get(n, f"${n}") for n in range(1, len(function.inputs) + 1)]
    return f"{function.proxy}({', '.join([shard, _ACTOR, *given])})"


def _each(function: Function) -> str:
    """Asks all shards. Its first argument says whether a read leaves out those that are lost."""
    inputs = ", ".join(["boolean", *(kind for _, kind in function.inputs)])
    columns = function.columns or [("value", "text" if function.result == "void" else _element(function))]
    given = {n: f"${n + 1}" for n in range(1, len(function.inputs) + 1)}
    failed = _RETHROW.format("_failed" if function.writes else "_shard")
    handled = (
        f"if _failed is null then _failed := _shard; {_HANDLE} end if;"
        if function.writes
        else f"{_HANDLE} if not ($1 and {_LOST}) then {failed} end if;\n      {_MISSING}"
    )
    alias = "c" if function.columns else "c(value)"
    selected = ", ".join(f'c."{name}"' for name, _ in columns)
    return f"""create function {function.proxy}_each({inputs})
returns table (shard_number integer, {declared(columns)})
language plpgsql volatile as $each$
#variable_conflict use_column
declare
  _failed integer; {_DECLARE}
begin
  for _shard in 0 .. (select pg_catalog.max(s.shard_number) from holdfast_front.shard s) loop
    begin
      return query select _shard, {selected}
      from {_call(function, "_shard", given)} {alias};
    exception when others then
      {handled}
    end;
  end loop;
  {f"if _failed is not null then {failed} end if;" if function.writes else ""}
end
$each$"""


def _public(function: Function) -> str:
    """Has the same name, arguments, defaults and result as on one server."""
    body = {
        "shard": _refusal,
        "each": _all_shards,
        "ids": _by_ids,
        "batch": _batch,
        "numbered": _numbered,
    }.get(function.route.kind, _one_shard)(function)
    return f"""create function {function.name}({function.arguments})
returns {function.result}
language plpgsql volatile as $front$
#variable_conflict use_column
{body}
$front$"""


def _refusal(function: Function) -> str:
    return f"""begin
  {_REFUSED.format(function=function.name)}
end"""


def _one_shard(function: Function) -> str:
    if function.route.kind == "task":
        return _new_task(function)
    return f"""declare
  _shard integer; {_DECLARE}
begin
  {_refuse_transaction(function)}_shard := {_home(function)};
  {_returned(function, _call(function, "_shard"))}
exception when others then
  {_HANDLE}
  perform holdfast_front.rethrow(_shard, _state, _message, _detail, _hint);
end"""


def _new_task(function: Function) -> str:
    """A task without a key may go to any shard, so one that cannot be connected to is passed over."""
    keys = [key for key in _keys(function) if key != "null"]
    return f"""declare
  _shard integer; _keyed constant boolean := coalesce({", ".join(keys)}) is not null; {_DECLARE}
begin
  {_refuse_transaction(function)}_shard := {_home(function)};
  for _tried in 1 .. (select pg_catalog.count(*) from holdfast_front.shard) loop
    begin
      {_returned(function, _call(function, "_shard"))}
      {"return;" if function.returns_set else ""}
    exception when others then
      {_HANDLE}
      if _keyed or not holdfast_front.is_unsent(_state, _message) then
        perform holdfast_front.rethrow(_shard, _state, _message, _detail, _hint);
      end if;
      _shard := (_shard + 1) % (select pg_catalog.count(*)::integer from holdfast_front.shard);
    end;
  end loop;
  perform holdfast_front.rethrow(_shard, _state, _message, _detail, _hint);
end"""


def _home(function: Function) -> str:
    """The expression that finds the shard."""
    route = function.route
    if route.kind == "first":
        return "0"
    if route.kind == "id":
        return f"coalesce(holdfast_front.shard_of(${function.place_of(route.detail or '')}), 0)"
    if route.kind == "text":
        texts = " || pg_catalog.chr(10) || ".join(
            f"${function.place_of(argument)}" for argument in (route.detail or "").split()
        )
        return f"coalesce(holdfast_front.shard_of_text({texts}), holdfast_front.any_shard())"
    if route.kind == "after":
        after, tasks = (f"${function.place_of(name)}" for name in (route.detail or "", "tasks"))
        return f"holdfast_front.shard_after({after}, {tasks})"
    given = [f"${function.place_of('type')}", *_keys(function)]
    home = f"holdfast_front.shard_of_task({', '.join(given)})"
    if route.kind == "unique":
        asked, *spec = (f"${function.place_of(name)}" for name in ("unique", "type", "executor", "payload"))
        return (
            f"case when {asked} in ('succeeded', 'active')"
            f" then coalesce(holdfast_front.shard_of_spec({', '.join(spec)}), 0) else {home} end"
        )
    return home


def _keys(function: Function) -> list[str]:
    """The arguments that choose the shard of a new task, or null for those that the function lacks."""
    found = [next((name for name in names if function.has(name)), None) for names in _KEYS]
    return ["null" if name is None else f"${function.place_of(name)}" for name in found]


def _all_shards(function: Function) -> str:
    partial = "coalesce(pg_catalog.current_setting('holdfast.partial', true), '') = 'on'"
    passed = ", ".join(
        ["true" if function.name == "queues.health" else partial]
        + [f"${n}" for n in range(1, len(function.inputs) + 1)]
    )
    answers = f"{function.proxy}_each({passed}) answer"
    if function.result == "void":
        return f"begin\n  {_refuse_transaction(function)}perform * from {answers};\nend"
    if not function.columns:
        merged = _merged_value(function)
        return f"begin\n  {_refuse_transaction(function)}return (select {merged} from {answers});\nend"
    if "{answers}" in (function.route.merge or ""):
        query = str(function.route.merge).replace("{answers}", answers)
    else:
        selected, rest = merge_columns(function.route.merge, function.columns)
        query = f"select {selected} from {answers} {rest}"
    if not function.returns_set:
        names = ", ".join(f'"{name}"' for name, _ in function.columns)
        return f"begin\n  select merged.* into {names} from ({query}) merged;\nend"
    if function.route.detail:
        return f"""begin
  if ${function.place_of(function.route.detail)} is not null then
    {_REFUSED.format(function=f"{function.name} with {function.route.detail}")}
  end if;
  return query {query};
end"""
    if function.name == "queues.health":
        query = f"select lost.* from holdfast_front.lost_shards() lost union all ({query})"
    return f"begin\n  {_refuse_transaction(function)}return query {query};\nend"


def _merged_value(function: Function) -> str:
    if function.route.merge:
        return function.route.merge.removeprefix("select ")
    if function.result == "boolean":
        return "pg_catalog.bool_or(answer.value)"
    return f"pg_catalog.sum(answer.value)::{function.result}"


def merge_columns(merge: str | None, columns: list[Column]) -> tuple[str, str]:
    """The select list, and what follows the from clause."""
    every = ", ".join(f'answer."{name}"' for name, _ in columns)
    if merge is None:
        return every, ""
    if not merge.startswith("select "):
        return every, merge
    selected, rest = merge.removeprefix("select "), ""
    for word in ("group by", "order by"):
        head, found, tail = selected.rpartition(f" {word} ")
        if found:
            selected, rest = head, f"{word} {tail} {rest}"
    return selected.replace("answer.*", every), rest


def _by_ids(function: Function) -> str:
    place = function.place_of(function.route.detail or "")
    return f"""declare
  _shard integer; _part uuid[]; {_DECLARE}
begin
  if ${place} is null or pg_catalog.cardinality(${place}) = 0 or pg_catalog.cardinality(${place}) > 10000 then
    return query select c.* from {_call(function, "0")} c;
    return;
  end if;
  for _shard, _part in
    select holdfast_front.shard_of(g.id), pg_catalog.array_agg(g.id)
    from pg_catalog.unnest(${place}) g(id) where g.id is not null group by 1
  loop
    return query select c.* from {_call(function, "_shard", {place: "_part"})} c;
  end loop;
exception when others then
  {_HANDLE}
  perform holdfast_front.rethrow(_shard, _state, _message, _detail, _hint);
end"""


def _numbered(function: Function) -> str:
    place = function.place_of(function.route.detail or "")
    return f"""declare
  _shard integer := 0; _number bigint; {_DECLARE}
begin
  perform holdfast_front.refuse_transaction();
  _number := {_call(function, "0", {place: "null"})};
  for _other in 1 .. (select pg_catalog.max(s.shard_number) from holdfast_front.shard s) loop
    _shard := _other;
    perform {_call(function, "_shard", {place: "_number"})};
  end loop;
  return _number;
exception when others then
  {_HANDLE}
  perform holdfast_front.rethrow(_shard, _state, _message, _detail, _hint);
end"""


def _batch(function: Function) -> str:
    """Parts that are lost do not keep the others from being written; a part that is refused does."""
    place = function.place_of(function.route.detail or "")
    payloads = f"${function.place_of('payloads')}" if function.has("payloads") else "null"
    split = f"holdfast_front.split(${place}, {payloads})"
    return f"""declare
  _part record; _lost record; _answers jsonb := '[]'; _got jsonb; _shard integer; {_DECLARE}
  _size constant integer :=
    case when pg_catalog.jsonb_typeof(${place}) = 'array' then pg_catalog.jsonb_array_length(${place}) end;
begin
  perform holdfast_front.refuse_transaction();
  for _part in select p.* from {split} p loop
    _shard := _part.shard_number;
    for _tried in 1 .. (select pg_catalog.count(*) from holdfast_front.shard) loop
      begin
        if _part.places is null then
          return query
          select c.task_id, c.created from {_call(function, "_shard", {place: "_part.part"})} c;
          return;
        end if;
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(_part.places[c.n], c.task_id, c.created))
        into _got
        from (
          select c.*, pg_catalog.row_number() over () as n
          from {_call(function, "_shard", {place: "_part.part"})} c) c;
        _answers := _answers || _got;
        exit;
      exception when others then
        {_HANDLE}
        if _part.anywhere and holdfast_front.is_unsent(_state, _message) then
          _lost := row(_shard, _part.places, _state, _message, _detail, _hint);
          _shard := (_shard + 1) % (select pg_catalog.count(*)::integer from holdfast_front.shard);
        elsif holdfast_front.is_lost(_state) then
          _lost := row(_shard, _part.places, _state, _message, _detail, _hint);
          exit;
        else
          perform holdfast_front.rethrow_part(
            _shard, _part.places, _size, _answers, _state, _message, _detail, _hint);
        end if;
      end;
    end loop;
  end loop;
  if _lost is distinct from null then
    perform holdfast_front.rethrow_part(
      _lost.f1, _lost.f2, _size, _answers, _lost.f3, _lost.f4, _lost.f5, _lost.f6);
  end if;
  return query
  select (a ->> 1)::uuid, (a ->> 2)::boolean
  from pg_catalog.jsonb_array_elements(_answers) a order by (a ->> 0)::integer;
end"""


def _returned(function: Function, call: str) -> str:
    if function.result == "void":
        return f"perform {call};"
    if function.returns_set:
        return f"return query select c.* from {call} c;"
    if not function.columns:
        return f"return {call};"
    names = ", ".join(f'"{name}"' for name, _ in function.columns)
    return f"select c.* into {names} from {call} c;"


def _refuse_transaction(function: Function) -> str:
    return "perform holdfast_front.refuse_transaction();\n  " if function.writes else ""


def _grants(function: Function) -> Iterator[str]:
    if not function.grantees:
        return
    roles = ", ".join(function.grantees)
    yield f"grant execute on function {function.identity} to {roles}"


def _element(function: Function) -> str:
    return function.result.removeprefix("SETOF ")


def declared(columns: list[Column]) -> str:
    return ", ".join(f'"{name}" {kind}' for name, kind in columns)
