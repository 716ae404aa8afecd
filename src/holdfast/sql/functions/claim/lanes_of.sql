-- The lanes of these queues and of these types, each once, whatever state their queue is in.
-- No pinned path, so that it is inlined: each half is a range of an index.
create or replace function queues.lanes_of(queues text[], types text[])
returns setof queues.lane
language sql stable
as $$
  select l.* from queues.lane l where l.queue = any (queues)
  union all
  select l.* from queues.lane l where l.type = any (types) and (l.queue = any (queues)) is not true
$$;

comment on function queues.lanes_of(text[], text[]) is 'The lanes of these queues and of these types, each once.';
