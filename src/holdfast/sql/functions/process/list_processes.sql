-- Returns every registered process: how many instances have not ended and how many are in trouble, each counted up to
-- max_counted, and when the newest was started.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.list_processes(max_counted integer default 1000)
returns table (
  process text, kind text, supervisor text, can_start boolean, unfinished bigint, in_trouble bigint,
  newest_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
  if max_counted is null or max_counted not between 1 and 100000 then
    raise exception using errcode = 'QF400', message = 'max_counted must be between 1 and 100000';
  end if;
  return query
  select p.process, p.kind, p.supervisor, (queues.find_process_function(p.kickoff, 'kickoff')).owner is not null,
    (select count(*) from (
      select from queues.process_instance i where i.process = p.process and i.ended_at is null limit max_counted) i),
    (select count(*) from (
      select from queues.process_instance i where i.process = p.process and i.trouble is not null
      limit max_counted) i),
    (select i.created_at from queues.process_instance i where i.process = p.process
      order by i.process_id desc limit 1)
  from queues.process p
  order by p.process;
end
$$;

comment on function queues.list_processes(integer) is
  'Returns every registered process: how many instances have not ended, and how many are in trouble.';
