-- Counts errors that were written since the last call in their groups, and returns how many it has examined. A type has
-- at most 100 groups; further errors are counted in one group with an empty title. Also merges counts older than a day
-- into hours and forgets those older than 30 days. Another call that runs at the same time does nothing.
-- For holdfast_worker and holdfast_operator. Locks: the row of queues.error_progress, then groups and counts.
create or replace function queues.count_errors(max_errors integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _snapshot constant pg_snapshot := pg_current_snapshot();
  _from bigint;
  _last bigint;
  _late bigint[];
  _new bigint[];
begin
  if max_errors is null or max_errors not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_errors must be between 1 and 10000';
  end if;
  select p.counted_to into _from from queues.error_progress p for update skip locked;
  if not found then
    return 0;
  end if;
  -- Numbers are drawn before the commit, so an error may become visible after one with a higher number.
  _late := array(
    select e.error_id from queues.error_gap g join queues.error e on e.error_id = g.error_id
    order by e.error_id limit max_errors);
  _new := array(
    select e.error_id from queues.error e where e.error_id > _from order by e.error_id limit max_errors);
  _last := coalesce(_new[cardinality(_new)], _from);

  delete from queues.error_gap g
  where g.error_id = any (_late) or g.noticed_before <= pg_snapshot_xmin(_snapshot);
  insert into queues.error_gap (error_id, noticed_before)
  select n, pg_snapshot_xmax(pg_current_snapshot())
  from generate_series(greatest(_from, _last - 10000) + 1, _last) n
  except select unnest(_new), pg_snapshot_xmax(pg_current_snapshot());
  update queues.error_progress p set counted_to = _last where p.counted_to < _last;

  if cardinality(_late) + cardinality(_new) > 0 then
    perform queues.add_to_groups(_late || _new);
  end if;
  perform queues.thin_error_counts(max_errors, _now);
  return cardinality(_late) + cardinality(_new);
end
$$;

comment on function queues.count_errors(integer) is
  'Counts errors that were written since the last call in their groups, and returns how many it has examined.';
