-- Returns whether an element of a batch is valid at first sight, without reading any table. Other elements get the full
-- check (check_task). No pinned path, so that PostgreSQL can inline it: it runs once per enqueued task.
create or replace function queues.looks_right(
  type text, queue text, executor text, priority text, max_attempts text, idempotency_key text, others jsonb,
  payload_text text, max_payload_bytes bigint)
returns boolean
language sql immutable parallel safe
as $$
  select pg_catalog.octet_length(payload_text) <= max_payload_bytes
    and executor = 'python'
    and pg_catalog.octet_length(type) <= 200 and type ~ '^[A-Za-z0-9_-]+(?:[.:][A-Za-z0-9_-]+)*$'
    and (queue is null or pg_catalog.octet_length(queue) <= 200 and queue ~ '^[A-Za-z0-9_-]+$')
    and (priority is null or priority ~ '^-?(?:[0-9]{1,2}|100)$')
    and (max_attempts is null or max_attempts ~ '^[1-9][0-9]?$')
    and (idempotency_key is null or pg_catalog.octet_length(idempotency_key) between 1 and 500)
    and others = '{}'
$$;

comment on function queues.looks_right(text, text, text, text, text, text, jsonb, text, bigint) is
  'Returns whether an element of a batch is valid at first sight, without reading any table.';
