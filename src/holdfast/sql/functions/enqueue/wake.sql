-- Notifies idle workers of a queue, unless none is idle or a worker throttles the wake-ups (keep_door). NOTIFY takes a
-- lock that all commits of the server share, and wakes every listener. A notification is only a hint: a worker that
-- misses it polls.
create or replace function queues.wake(batch queues.new_task[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.worker w where w.idle) then
    perform pg_notify('holdfast', due.queue)
    from (select distinct b.queue, b.type from unnest(batch) b where b.run_at <= wake.now) due
    where exists (
      select from queues.worker w
      where w.idle and (due.queue = any (w.queues)
        or exists (select from unnest(w.type_prefixes) prefix where starts_with(due.type, prefix))))
      and not queues.is_kept(due.queue, wake.now);
  end if;
end
$$;

comment on function queues.wake(queues.new_task[], timestamptz) is
  'Notifies idle workers of a queue, unless none is idle or a worker throttles the wake-ups (keep_door).';
