-- Returns the owner of a function that a process registers for this use; refuses a function that breaks the rules. With
-- `registered` it was registered before, and has been dropped or changed since, or was registered by an older release.
-- Internal.
create or replace function queues.process_function(name text, use text, registered boolean default false)
returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _found constant oid := (queues.find_process_function(name, use)).owner;
  _called constant text := format('%s(%s)', coalesce(name, 'null'),
    case use when 'history' then 'bigint' when 'cancel' then 'bigint, text' else 'jsonb' end);
begin
  if _found is null then
    raise exception using errcode = case when registered then 'QF412' else 'QF400' end,
      message = case when registered
        then format('the %s %s was dropped or changed since it was registered, or is not granted to holdfast_caller',
          use, _called)
        else format('there is no function %s that a process may register as its %s', _called, use) end,
      hint = 'It must be the only function of its name, security definer, with search_path = pg_catalog, pg_temp, and '
        'not executable by PUBLIC.' || case use
        when 'kickoff' then ' It must return a bigint. Its first argument must be a jsonb, and every other one must '
          'be of a built-in type and have a constant of its own type as default, such as null or ''3''.'
        when 'history' then ' It must return table (at timestamptz, what text, reason text, task_id uuid).'
        when 'cancel' then ' It must return text.'
        else ' It must return jsonb.' end
        || format(' Its owner grants it: grant usage on schema %s to holdfast_caller; grant execute on function %s to '
          'holdfast_caller. holdfast process check shows what else is missing. In a database of a single login, it '
          'must belong to that login.', split_part(name, '.', 1), name);
  end if;
  return _found;
end
$$;

comment on function queues.process_function(text, text, boolean) is
  'Returns the owner of a function that a process registers; refuses a function that breaks the rules.';
