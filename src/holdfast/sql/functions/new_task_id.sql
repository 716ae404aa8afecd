-- Ids of tasks and events: UUIDv7, so that new rows are inserted at the end of an index, and retention finds the oldest
-- by id. Without uuidv7() in the server: 48 bits of milliseconds, 12 bits of their fraction, 18 bits of a sequence, the
-- rest random.
-- Invariant: ids grow from call to call within a session, so that tasks of one batch keep their order. Byte 11 is the
-- number of the shard, so that a front finds the task. It is a constant of the function, because reading it from
-- queues.shard would double the cost of an id; holdfast migrate replaces the function when it numbers a shard.
-- Lock order: none.
-- At the same time: sessions draw ids without knowing of each other. Those of different sessions are in order only as
-- far as their clocks are read in order, and become visible when their transactions commit, so an older id may appear
-- after a newer one.

create sequence if not exists queues.task_number as bigint cycle;

do $install$
declare
  _shard constant text := coalesce((select s.shard_number from queues.shard s), 0);
begin
  if pg_catalog.current_setting('server_version_num')::integer >= 180000 then
    execute pg_catalog.replace($function$
    create or replace function queues.new_task_id()
    returns uuid
    language sql volatile parallel safe
    as $$
      select pg_catalog.encode(pg_catalog.set_byte(pg_catalog.uuid_send(pg_catalog.uuidv7()), 11, :shard), 'hex')::uuid
    $$
    $function$, ':shard', _shard);
  else
    execute pg_catalog.replace($function$
    create or replace function queues.new_task_id()
    returns uuid
    language sql volatile
    as $$
      select pg_catalog.encode(
        pg_catalog.substring(pg_catalog.int8send(micros / 1000), 3, 6)
        || pg_catalog.substring(pg_catalog.int8send(x'7000'::bigint | ((micros % 1000) * 4096 / 1000)), 7, 2)
        || pg_catalog.substring(pg_catalog.int8send(
             (2::bigint << 62) | ((pg_catalog.nextval('queues.task_number') & 262143) << 44)
             | (:shard::bigint << 32)), 1, 4)
        || pg_catalog.substring(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()), 13, 4), 'hex')::uuid
      from (select (pg_catalog.extract('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint as micros) t
    $$
    $function$, ':shard', _shard);
  end if;
end
$install$;

comment on function queues.new_task_id() is
  'Returns a UUIDv7 that grows from call to call within a session, so that tasks of one batch keep their order.';

-- Returns the id of the nth task of a batch: the id of the batch with its last 24 bits counting up. Only for calls of
-- the release before that a migration held up: they go on as they began.
-- Internal.
create or replace function queues.nth_task_id(first_id uuid, n bigint)
returns uuid
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select (left(first_id::text, 30) || lpad(to_hex(n), 6, '0'))::uuid $$;
