-- Returns the lanes of these queues and types that claims read, each once, including those of paused queues. Among the
-- types, the empty one stands for lanes that types share. No pinned path, so that PostgreSQL can inline it: each half
-- is an index range.
-- Internal.
create or replace function queues.lanes_of(queues text[], types text[])
returns setof queues.lane
language sql stable
as $$
  select l.* from queues.lane l where l.queue = any (queues) and coalesce(l.concurrency_key, '') = ''
  union all
  select l.* from queues.lane l
  where l.type = any (types) and coalesce(l.concurrency_key, '') = '' and (l.queue = any (queues)) is not true
$$;

comment on function queues.lanes_of(text[], text[]) is
  'Returns the lanes of these queues and types that claims read, each once.';
