-- Returns true if the options of a task are certainly valid and need no rights but those of a client. Others get the
-- full check (check_task). No pinned path, so that PostgreSQL can inline it.
create or replace function queues.are_simple_options(
  queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer, timeout interval,
  lease interval, executor text, metadata jsonb, concurrency_key text, now timestamptz)
returns boolean
language sql stable parallel safe
as $$
  select (queue is null or queue ~ '^[A-Za-z0-9_-]{1,200}$')
    and (priority is null or priority between -100 and 100)
    and (run_at is null or run_at between timestamptz '1970-01-01 00:00Z' and now + interval '100 years')
    and (idempotency_key is null or pg_catalog.octet_length(idempotency_key) between 1 and 500)
    and (max_attempts is null or max_attempts between 1 and 1000)
    and (timeout is null or timeout between interval '1 millisecond' and interval '30 days')
    and (lease is null or lease between interval '1 second' and interval '1 day')
    and (executor is null or executor = 'python')
    and (metadata is null or pg_catalog.jsonb_typeof(metadata) = 'object' and pg_catalog.pg_column_size(metadata) <= 250
      and pg_catalog.octet_length(metadata::text) <= 308)
    and (concurrency_key is null or pg_catalog.octet_length(concurrency_key) between 1 and 200)
$$;

comment on function queues.are_simple_options(
  text, integer, timestamptz, text, integer, interval, interval, text, jsonb, text, timestamptz) is
  'Returns true if the options of a task are certainly valid and need no rights but those of a client.';
