-- Removes registry rows of processes that ended longer ago than the policy for history keeps. Removes a limited number
-- per call and returns how many. The facts in their own schemas stay.
-- For holdfast_worker and holdfast_operator. Locks: the rows that it removes, without waiting.
create or replace function queues.prune_processes(max_processes integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _cutoff constant timestamptz := queues.clock() - (select r.keep from queues.retention r where r.status = 'history'
    and r.type_prefix = '');
  _removed integer;
begin
  if max_processes is null or max_processes not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_processes must be between 1 and 10000';
  end if;
  delete from queues.process_instance i
  where (i.process, i.process_id) in (
    select old.process, old.process_id from queues.process_instance old
    where old.ended_at < _cutoff order by old.ended_at limit max_processes for update skip locked);
  get diagnostics _removed = row_count;
  return _removed;
end
$$;

comment on function queues.prune_processes(integer) is
  'Removes registry rows of processes that ended longer ago than the policy for history keeps.';
