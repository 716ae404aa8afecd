-- Calls a function of somebody else through internal.call_function, and returns its answer as a document. Meanwhile,
-- the session acts for the given namespace, or for its own, and has no role of the engine. Refuses a function that its
-- owner has replaced meanwhile, one that changes settings of the session, and one that leaves something behind that
-- would run its code later as the caller. Whatever a history has changed is undone.
-- Internal. Locks: what the function locks.
create or replace function internal.call_checked(
  function_name text, use text, arguments jsonb, namespace text default null)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _before constant text[] := array(select i::text from internal.session_items() i);
  -- The function cannot know this path. If it has set one for the session, this one is not in force afterwards.
  _path constant text := set_config('search_path', 'pg_catalog, pg_temp, ' || gen_random_uuid(), true);
  _acting_for constant text := current_setting('holdfast.acting_for', true);
  _settings text[];
  _began boolean;
  _expression text;
  _version text;
  _left text;
  _answer jsonb;
  _undo boolean := false;
begin
  select f.expression, f.version into _expression, _version from queues.find_process_function(function_name, use) f;
  if _version is null then
    raise exception using errcode = 'QF412', message = format('%s was dropped or changed just now', function_name);
  elsif use <> 'history' and current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF400',
      message = format('%s must be called in a transaction that is read committed', function_name),
      hint = 'Otherwise what its owner has changed since the transaction began cannot be seen.';
  end if;
  begin
    _began := internal.begin_call(namespace);
    -- As for the path: only a value that the function cannot know shows that it has set none for the session.
    perform set_config('holdfast.acting_for', gen_random_uuid()::text, true);
    _settings := internal.session_settings();
    _answer := internal.call_function(format(case use
      when 'history' then 'select jsonb_agg(jsonb_build_array(h.at, h.what, h.reason, h.task_id) order by h.place)
        from (select f.*, row_number() over () as place from %s f(at, what, reason, task_id)
          order by place desc limit ($1 ->> 1)::integer) h'
      when 'task' then 'select %s' else 'select to_jsonb(%s)' end, _expression), arguments);
    if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) _path then
      raise exception using errcode = 'QF412',
        message = pg_catalog.format('%s sets the search_path of the session of its caller', function_name),
        hint = 'Use the set clause of create function.';
    end if;
    -- What it enqueues makes the commit wait for the disk: see commit_to_disk.
    select string_agg(split_part(s, ' = ', 1), ', ') into _left from unnest(internal.session_settings()) s
    where s <> all (_settings || 'synchronous_commit = on'::text);
    if _left is not null then
      raise exception using errcode = 'QF412',
        message = format('%s changes %s for the session or transaction of its caller', function_name, _left),
        hint = 'Use the set clause of create function.';
    end if;
    if _began then
      perform internal.end_call();
    end if;
    perform set_config('holdfast.acting_for', _acting_for, true);
    select string_agg(distinct i.kind, ', ') into _left from internal.session_items() i
    where i::text <> all (_before);
    if _left is not null then
      raise exception using errcode = 'QF412',
        message = format('%s leaves %s in the session or transaction of its caller', function_name, _left),
        hint = 'It would run later with the rights of the caller. Have the function do without it.';
    elsif (queues.find_process_function(function_name, use)).version is distinct from _version then
      raise exception using errcode = 'QF412',
        message = format('%s was replaced while it was called, so the call was undone', function_name);
    elsif use = 'history' then
      _undo := true;
      raise exception 'undo';
    end if;
  exception when others or query_canceled or assert_failure then
    -- A rollback does not remove prepared statements.
    for _left in select i.name from internal.session_items() i
      where i.kind = 'a prepared statement' and i::text <> all (_before)
    loop
      execute format('deallocate %I', _left);
    end loop;
    if not _undo then
      raise;
    end if;
  end;
  return _answer;
end
$$;

comment on function internal.call_checked(text, text, jsonb, text) is
  'Calls a function of somebody else, and refuses one that leaves something behind.';
