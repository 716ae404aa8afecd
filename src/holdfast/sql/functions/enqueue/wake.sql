-- Tells idle workers that a queue has work, and nobody if none is idle or one keeps the door: NOTIFY takes a lock that all of the
-- server's commits share, and wakes every listener. A hint only: who misses it polls.
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
  'Tells idle workers that a queue has work, and nobody if none is idle or one keeps the door.';
