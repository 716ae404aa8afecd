-- What every generated function and view of a front uses. :count is the number of shards, :keys of those that keys are
-- spread over: all but those that were added later. :grants is that query of catalog.sql.
create function holdfast_front.shard_of(task_id uuid)
returns integer
language sql immutable parallel safe
as $$ select pg_catalog.get_byte(pg_catalog.uuid_send(task_id), 11) % :count $$;
comment on function holdfast_front.shard_of(uuid) is 'Returns the number of the shard that has the task with this id.';

-- MD5, because it is the same on every server and in every language; it protects nothing here.
create function holdfast_front.shard_of_text(given text)
returns integer
language sql immutable parallel safe
as $$ select (('x' || pg_catalog.left(pg_catalog.md5(given), 8))::bit(32)::bigint % :keys)::integer $$;
comment on function holdfast_front.shard_of_text(text) is 'Returns the number of the shard that has what has this key.';

create function holdfast_front.shard_of_spec(type text, executor text, payload jsonb)
returns integer
language sql immutable parallel safe
as $$
  select holdfast_front.shard_of_text(
    $1 || pg_catalog.chr(10) || coalesce($2, '') || pg_catalog.chr(10) || $3::text)
$$;
comment on function holdfast_front.shard_of_spec(text, text, jsonb) is
  'Returns the number of the shard for a task whose key is its spec.';

create function holdfast_front.any_shard()
returns integer
language sql volatile parallel safe
as $$ select pg_catalog.floor(pg_catalog.random() * :count)::integer $$;
comment on function holdfast_front.any_shard() is 'Returns the number of some shard.';

create function holdfast_front.shard_of_task(type text, idempotency_key text, concurrency_key text, shard_key text)
returns integer
language sql volatile parallel safe
as $$
  select coalesce(
    holdfast_front.shard_of_text(coalesce($4, $3, $1 || pg_catalog.chr(10) || $2)), holdfast_front.any_shard())
$$;
comment on function holdfast_front.shard_of_task(text, text, text, text) is
  'Returns the number of the shard for a new task: by shard_key, else concurrency_key, else type and key, else any.';

-- The end of a task wakes only those that wait for it on its own shard.
create function holdfast_front.shard_after(after uuid[], tasks jsonb)
returns integer
language plpgsql volatile
as $$
declare
  _homes constant integer[] := array(
    select holdfast_front.shard_of(a.id) from pg_catalog.unnest(after) a(id) where a.id is not null
    union
    select k.home from (
      select holdfast_front.shard_of_element(e.element) as home
      from pg_catalog.jsonb_array_elements(
        case pg_catalog.jsonb_typeof(tasks) when 'array' then tasks else '[]' end) e(element)) k
    where k.home is not null
    order by 1);
begin
  if pg_catalog.cardinality(_homes) > 1 then
    raise exception using errcode = 'QF400',
      message = pg_catalog.format('a task has to be on the shard of those that it waits for, and these are on %s', (
        select pg_catalog.string_agg(holdfast_front.shard_name(h.home), ', ' order by h.home)
        from pg_catalog.unnest(_homes) h(home))),
      hint = 'Give all of them the same shard_key.';
  end if;
  return coalesce(_homes[1], holdfast_front.any_shard());
end
$$;
comment on function holdfast_front.shard_after(uuid[], jsonb) is
  'Returns the number of the shard for tasks after others: that of the others. Refuses tasks of several shards.';

create function holdfast_front.shard_of_element(element jsonb)
returns integer
language sql volatile parallel safe
as $$
  select case when $1 ? 'after' then holdfast_front.shard_after(array(
      select a.id::uuid
      from pg_catalog.jsonb_array_elements_text(
        case pg_catalog.jsonb_typeof($1 -> 'after') when 'array' then $1 -> 'after' else '[]' end) a(id)
      where a.id ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'),
    pg_catalog.jsonb_build_array($1 - 'after'))
  when $1 ->> 'unique' in ('succeeded', 'active')
    then holdfast_front.shard_of_spec($1 ->> 'type', $1 ->> 'executor', coalesce($1 -> 'payload', '{}'))
  else holdfast_front.shard_of_text(coalesce($1 ->> 'shard_key', $1 ->> 'concurrency_key',
    ($1 ->> 'type') || pg_catalog.chr(10) || ($1 ->> 'idempotency_key'))) end
$$;
comment on function holdfast_front.shard_of_element(jsonb) is
  'Returns the number of the shard for an element of a batch, or null if it may go anywhere.';

create function holdfast_front.shard_name(shard_number integer)
returns text
language sql stable
as $$ select s.shard_name from holdfast_front.shard s where s.shard_number = $1 $$;
comment on function holdfast_front.shard_name(integer) is 'Returns the name of a shard.';

-- A call of a front is a transaction of its own on the shard: it stays when the caller rolls back. PostgreSQL does not
-- tell a function whether the caller has begun a transaction, only whether that transaction has written something. So
-- an application that was given a transaction (tx=) says so in a comment of its statement.
create function holdfast_front.refuse_transaction()
returns void
language plpgsql stable
as $$
begin
  if pg_catalog.strpos(pg_catalog.current_query(), '/* holdfast tx */') > 0 then
    raise exception using errcode = 'QF400',
      message = 'tx is a transaction on a front, and tasks are on its shards: '
        'the task would stay if the transaction rolled back',
      hint = 'Pass a connection to the shard that has your rows (holdfast shards status lists them), '
        'or leave tx out.';
  elsif pg_catalog.pg_current_xact_id_if_assigned() is not null then
    raise exception using errcode = 'QF400',
      message = 'a front cannot take part in a transaction that writes: the task would stay if it rolled back',
      hint = 'Connect to the shard that has your rows (holdfast shards status lists them), '
        'or call the function outside of the transaction.';
  end if;
end
$$;
comment on function holdfast_front.refuse_transaction() is
  'Refuses a call inside a transaction that has written something, or that an application was given.';

-- Whether an error says that the shard could not be reached, and not that it refused the call.
create function holdfast_front.is_lost(state text)
returns boolean
language sql immutable parallel safe
as $$ select $1 = 'XX000' or pg_catalog.left($1, 2) in ('08', '53', '58') or pg_catalog.left($1, 3) = '57P' $$;
comment on function holdfast_front.is_lost(text) is 'Returns whether an error means that a shard was not reached.';

-- Whether the shard got nothing, so that the call may be made elsewhere: no connection to it could be opened.
create function holdfast_front.is_unsent(state text, message text)
returns boolean
language sql immutable parallel safe
as $$ select $1 = 'XX000' and $2 ~ 'PQconnect' $$;
comment on function holdfast_front.is_unsent(text, text) is
  'Returns whether an error means that the shard got nothing.';

-- PL/Proxy puts "function(arguments): [database] REMOTE ERROR: " before the message of a shard, and "Remote hint: "
-- before its hint. Callers get the error as the shard raised it.
create function holdfast_front.rethrow(shard_number integer, state text, message text, detail text, hint text)
returns void
language plpgsql stable
as $$
begin
  message := pg_catalog.regexp_replace(message, '^[^ ]+\(\d+\): \[[^]]*\] REMOTE [A-Z]+: ', '');
  hint := nullif(pg_catalog.regexp_replace(coalesce(hint, ''), '^Remote hint: ', ''), '');
  detail := nullif(pg_catalog.regexp_replace(coalesce(detail, ''), '^Remote detail: ', ''), '');
  if holdfast_front.is_lost(state) and message ~ 'role "[^"]*" does not exist' then
    hint := 'The login has to exist on every shard. Have an administrator create it there, and run holdfast grant.';
  end if;
  if holdfast_front.is_lost(state) and message not like 'shard % cannot be reached: %' then
    state := case when state = 'XX000' then '08006' else state end;
    message := pg_catalog.format('shard %s cannot be reached: %s',
      coalesce(holdfast_front.shard_name(shard_number), '?'), pg_catalog.btrim(pg_catalog.regexp_replace(
        message, '^PL/Proxy function [^ ]+\(\d+\): (\[[^]]*\] )?(PQ\w+: )?', ''), E' \n\t'));
  end if;
  -- An empty detail or hint would be sent as an empty line, and null is refused.
  if detail is not null and hint is not null then
    raise exception using errcode = state, message = message, detail = detail, hint = hint;
  elsif detail is not null then
    raise exception using errcode = state, message = message, detail = detail;
  elsif hint is not null then
    raise exception using errcode = state, message = message, hint = hint;
  end if;
  raise exception using errcode = state, message = message;
end
$$;
comment on function holdfast_front.rethrow(integer, text, text, text, text) is
  'Raises the error of a shard as the shard raised it, or says which shard cannot be reached.';

create function holdfast_front.ping(shard_number integer)
returns integer
language plproxy
as $$ cluster 'holdfast'; run on shard_number; select 1; $$;
comment on function holdfast_front.ping(integer) is 'Returns 1 from this shard.';

create function holdfast_front.problem_of(shard_number integer)
returns text
language plpgsql volatile
as $$
declare
  _message text;
begin
  begin
    perform holdfast_front.ping($1);
    return null;
  exception when others then
    -- Once more: a connection from before a restart of the shard fails when it is used next.
    begin
      perform holdfast_front.ping($1);
      return null;
    exception when others then
      get stacked diagnostics _message = message_text;
      return pg_catalog.btrim(pg_catalog.regexp_replace(_message,
        '^(PL/Proxy function )?[^ ]+\(\d+\): (\[[^]]*\] )?(PQ\w+: |REMOTE [A-Z]+: )?', ''), E' \n\t');
    end;
  end;
end
$$;
comment on function holdfast_front.problem_of(integer) is 'Returns why this shard cannot be reached, or null.';

-- Whether a read uses this shard. False only for a session that has set holdfast.partial, and while the shard cannot be
-- reached. Declared immutable, though it is not, so that the planner calls it and leaves the shard out of the plan: the
-- executor would connect to it before it looks at any condition. So plans must not be kept: see plan_cache_mode.
create function holdfast_front.is_used(shard_number integer)
returns boolean
language plpgsql immutable
as $$
declare
  _problem text;
begin
  if coalesce(pg_catalog.current_setting('holdfast.partial', true), '') <> 'on' then
    return true;
  end if;
  _problem := holdfast_front.problem_of($1);
  if _problem is not null then
    raise warning 'shard % cannot be reached, so its part is missing: %', holdfast_front.shard_name($1), _problem;
  end if;
  return _problem is null;
end
$$;
comment on function holdfast_front.is_used(integer) is
  'Returns whether a read uses this shard: always, unless the session has set holdfast.partial and the shard is lost.';

create function holdfast_front.shard_status()
returns table (shard_number integer, shard_name text, address text, reached boolean, problem text)
language plpgsql volatile
as $$
declare
  _shard record;
begin
  for _shard in select s.* from holdfast_front.shard s order by s.shard_number loop
    problem := holdfast_front.problem_of(_shard.shard_number);
    shard_number := _shard.shard_number;
    shard_name := _shard.shard_name;
    address := _shard.address;
    reached := problem is null;
    return next;
  end loop;
end
$$;
comment on function holdfast_front.shard_status() is
  'Returns the shards of this front, and whether each can be reached.';

create function holdfast_front.list_shards()
returns table (shard_number integer, shard_name text, address text)
language sql stable
as $$ select s.shard_number, s.shard_name, s.address from holdfast_front.shard s order by s.shard_number $$;
comment on function holdfast_front.list_shards() is
  'Returns the shards of this front, in their order, without asking them.';

create function holdfast_front.grants_on(shard_number integer)
returns setof text
language plproxy
as $$
  cluster 'holdfast'; run on shard_number;
  select pg_catalog.format('%s in %s', g.login, g.role) from (:grants) g;
$$;
comment on function holdfast_front.grants_on(integer) is 'Returns who has which role of Holdfast on this shard.';

-- A login that has a role on the front uses every shard. Where it lacks the role, some of its calls fail.
create function holdfast_front.missing_grants(shard_number integer)
returns text
language plpgsql volatile
as $$
begin
  return (
    select pg_catalog.string_agg(f.fact, ', ' order by f.fact)
    from (
      select pg_catalog.format('%s in %s', g.login, g.role) as fact from (:grants) g
      except
      select g.fact from holdfast_front.grants_on($1) g(fact)) f);
exception when others then
  return null;  -- it is lost, and another line says so
end
$$;
comment on function holdfast_front.missing_grants(integer) is
  'Returns the grants of the front that this shard lacks, or null.';

create function holdfast_front.lost_shards()
returns setof queues.health_line
language sql volatile
as $$
  select 'shard_grants', 'red', g.shard_name, null::double precision, 'shard_grants' as code,
    pg_catalog.jsonb_build_object('grants', g.missing), null
  from (
    select s.shard_name, holdfast_front.missing_grants(s.shard_number) as missing from holdfast_front.shard s
    order by s.shard_number) g
  where g.missing is not null
  union all
  select 'shard', 'red', s.shard_name, null::double precision, 'shard_lost' as code, '{}'::jsonb, s.problem
  from holdfast_front.shard_status() s where not s.reached
$$;
comment on function holdfast_front.lost_shards() is
  'Returns a red line of health for each shard that cannot be reached.';

-- The parts of a batch, one for each shard, with the places of their tasks. Tasks without a key go to one shard
-- together, 500 at a time: a batch in one piece is cheaper, and all or nothing. Such a part has no places, nor has one
-- of payloads for one element. A part that may go anywhere has no key.
create function holdfast_front.split(tasks jsonb, payloads text[])
returns table (shard_number integer, part jsonb, places integer[], anywhere boolean)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  _any constant integer := holdfast_front.any_shard();
begin
  if payloads is not null then
    return query
    select coalesce(split.home, _any), case pg_catalog.jsonb_typeof(tasks -> 0)
      when 'object' then pg_catalog.jsonb_set(tasks, '{0}', (tasks -> 0) - 'shard_key') else tasks end,
      null::integer[], split.home is null
    from (select holdfast_front.shard_of_element(tasks -> 0) as home) split;
    return;
  elsif tasks is null or pg_catalog.jsonb_typeof(tasks) <> 'array' or (
    pg_catalog.jsonb_array_length(tasks) <= 500
      and not tasks @? '$[*] ? (exists (@.idempotency_key) || exists (@.concurrency_key) || exists (@.shard_key)
        || exists (@.after))')
  then
    return query select _any, tasks, null::integer[], true;
    return;
  end if;
  return query
  select split.home, pg_catalog.jsonb_agg(split.element - 'shard_key' order by split.n),
    pg_catalog.array_agg(split.n::integer - 1 order by split.n), false
  from (
    select e.n, e.element,
      coalesce(holdfast_front.shard_of_element(e.element), (_any + (e.n - 1) / 500)::integer % :count) as home
    from pg_catalog.jsonb_array_elements(tasks) with ordinality e(element, n)) split
  group by split.home order by split.home;
end
$$;
comment on function holdfast_front.split(jsonb, text[]) is
  'Returns the parts of a batch, one for each shard, with the places of their tasks.';

-- Raises the error of one part of a batch: as the shard did if no part was written, else with what was written, so that
-- the caller knows what to send again.
create function holdfast_front.rethrow_part(
  failed integer, places integer[], size integer, written jsonb, state text, message text, detail text, hint text)
returns void
language plpgsql stable
as $$
#variable_conflict use_variable
declare
  _found text[];
  _name constant text := holdfast_front.shard_name(failed);
begin
  begin
    perform holdfast_front.rethrow(failed, state, message, detail, hint);
  exception when others then
    get stacked diagnostics state = returned_sqlstate, message = message_text,
      detail = pg_exception_detail, hint = pg_exception_hint;
  end;
  _found := pg_catalog.regexp_match(message, '\mtasks\[(\d+)\]');
  if _found is not null and places is not null then
    message := pg_catalog.replace(message, pg_catalog.format('tasks[%s]', _found[1]),
      pg_catalog.format('tasks[%s]', places[_found[1]::integer + 1]));
  elsif size > 1 and pg_catalog.cardinality(places) = 1 and state in ('QF400', 'QF413', 'QF422') then
    message := pg_catalog.format('tasks[%s].%s', places[1], message);
  end if;
  if written = '[]' then
    perform holdfast_front.rethrow(failed, state, message, detail, hint);
  end if;
  raise exception using errcode = 'QF207',
    message = pg_catalog.format('%s of %s tasks were enqueued, and %s on shard %s: %s',
      pg_catalog.jsonb_array_length(written), size,
      case when holdfast_front.is_lost(state) then 'it is not known how many' else 'none' end, _name, message),
    hint = 'Tasks with a key can be enqueued again: those that exist are returned.',
    detail = pg_catalog.jsonb_build_object('shard', _name, 'state', state, 'message', message, 'hint', hint,
      'enqueued', case when size <= 1000 then written end)::text;
end
$$;
comment on function holdfast_front.rethrow_part(integer, integer[], integer, jsonb, text, text, text, text) is
  'Raises the error of one part of a batch, with what other shards have written.';
