-- Returns the id of the nth task of a batch: the id of the batch with its last 24 bits counting up. No pinned path, so
-- that PostgreSQL can inline it.
create or replace function queues.nth_task_id(first_id uuid, n bigint)
returns uuid
language sql immutable parallel safe
as $$ select (pg_catalog.left(first_id::text, 30) || pg_catalog.lpad(pg_catalog.to_hex(n), 6, '0'))::uuid $$;

comment on function queues.nth_task_id(uuid, bigint) is
  'Returns the id of the nth task of a batch: the id of the batch with its last 24 bits counting up.';
