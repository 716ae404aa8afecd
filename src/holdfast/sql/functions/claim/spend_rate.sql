-- Charges the rates of these lanes for the tasks that start now.
-- Internal: called by claim, which holds the limits of these lanes.
create or replace function queues.spend_rate(places tid[], lanes bigint[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update queues.task_limit t
  set tokens = queues.tokens_at(t, spend_rate.now) - spent.count, counted_at = spend_rate.now
  from (
    select subject.subject, subject.name, count(*) as count
    from queues.ready r
    join queues.lane l on l.lane_id = r.lane_id
    cross join lateral (values ('queue', l.queue), ('type', l.type)) subject(subject, name)
    where r.ctid = any (places) and r.lane_id = any (lanes)
    group by subject.subject, subject.name) spent
  where t.subject = spent.subject and t.name = spent.name and t.rate is not null;
end
$$;

comment on function queues.spend_rate(tid[], bigint[], timestamptz) is
  'Charges the rates of these lanes for the tasks that start now.';
