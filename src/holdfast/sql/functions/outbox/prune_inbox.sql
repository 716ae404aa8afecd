-- Removes old received events, a limited number per call, and returns how many. If one of them is sent again, it counts
-- as new: keep them for longer than any sender retries.
-- For holdfast_worker and holdfast_operator. Locks: the rows that it removes, without waiting.
create or replace function queues.prune_inbox(older_than interval default '30 days', max_events integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _removed integer;
begin
  if older_than is null or older_than < '0' or max_events is null or max_events not between 1 and 100000 then
    raise exception using errcode = 'QF400',
      message = 'prune_inbox needs an age that is not negative, and max_events between 1 and 100000';
  end if;
  delete from queues.received_event r
  where (r.namespace, r.source, r.event_id) in (
    select old.namespace, old.source, old.event_id from queues.received_event old
    where old.received_at < queues.clock() - older_than
    order by old.received_at limit max_events for update skip locked);
  get diagnostics _removed = row_count;
  return _removed;
end
$$;

comment on function queues.prune_inbox(interval, integer) is
  'Removes old received events, a limited number per call, and returns how many.';
