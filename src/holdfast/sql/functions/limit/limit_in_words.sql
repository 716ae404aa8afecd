-- Returns a readable description of a limit.
create or replace function queues.limit_in_words(subject text, name text, concurrency_key text, max_running integer)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case concurrency_key when '' then format('of %s %s at most %s may run at once', subject, name, max_running)
    else format('of concurrency key %s of %s %s at most %s may run at once', to_json(concurrency_key), subject,
      name, max_running) end
$$;

comment on function queues.limit_in_words(text, text, text, integer) is 'Returns a readable description of a limit.';
