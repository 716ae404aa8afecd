-- Makes tasks with ended leases ready again, or dead_letter if their attempts are used up, and counts both. If a task
-- may not have begun and its worker is not late, it waits until the worker has told which tasks have begun: one that
-- has not keeps its attempt. After an outage, no worker is late at first. Wakes idle workers for the ready tasks.
-- Records when it looked, and when the next lease ends. Does nothing else, so that nothing else can undo it: see
-- do_chores. Any number of workers may call it at once.
-- For holdfast_worker and holdfast_operator. Locks: lease rows, without waiting.
create or replace function queues.sweep(max_tasks integer default 1000)
returns table (recovered integer, dead integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  -- 256 MB: as long as the table is smaller, one call reads all of it. It is larger only if vacuum cannot keep up.
  _most constant bigint := 32768;
  _now constant timestamptz := queues.clock();
  _pages constant bigint := pg_relation_size('queues.lease') / current_setting('block_size')::bigint;
  _since constant timestamptz := queues.reachable_since(_now);
  _page bigint := coalesce((select s.next_page from queues.last_sweep s), 0);
  _from tid;
  _to tid;
  _first timestamptz;
  _expired uuid[] := '{}';
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  end if;

  _page := case when _page < _pages then _page else 0 end;
  _from := format('(%s,0)', _page)::tid;
  -- Rows that are inserted meanwhile may be behind the last page.
  _to := format('(%s,0)', least(_page + _most, 4294967295))::tid;
  -- A range of pages instead of an index: every heartbeat would have to write an index on lease_until.
  _first := (select min(l.lease_until) from queues.lease l where l.ctid >= _from and l.ctid < _to);
  if _first < _now then
    _expired := array(
      select l.task_id from queues.lease l
      where l.ctid >= _from and l.ctid < _to and l.lease_until < _now
        and (l.started_at is not null
          -- Read once. Looking up the worker of every ended lease would cost most when all workers have died at once.
          or l.worker_id not in (
            select w.worker_id from queues.worker w
            where greatest(w.last_heartbeat, _since) > _now - 2 * w.heartbeat)
          or exists (
            select from queues.worker w where w.worker_id = l.worker_id and w.listed_at > l.lease_until))
      order by l.lease_until, l.task_id limit max_tasks
      for update skip locked);
  end if;
  recovered := 0;
  dead := 0;
  if _expired <> '{}' then
    perform queues.commit_to_disk();
    select r.recovered, r.dead into recovered, dead from queues.recover_leases(_expired, _now) r;
  end if;

  -- If leases were left over, the others look again in a second, unless another sweep is first.
  _first := case when _page > 0 or _pages > _most or _first < _now then _now else _first end;
  -- Stays at these pages until all their ended leases are recovered.
  _page := case when cardinality(_expired) < max_tasks and _page + _most < _pages then _page + _most
    when cardinality(_expired) < max_tasks then 0 else _page end;
  update queues.last_sweep s set swept_at = _now, reachable_since = _since, next_expiry = _first, next_page = _page
  where s.only_one in (select l.only_one from queues.last_sweep l for no key update skip locked);
  if not found and not exists (select from queues.last_sweep) then
    -- A crash has emptied the table. May wait for another sweep that is here, too, and waits for nothing.
    insert into queues.last_sweep (swept_at, reachable_since, next_expiry, next_page)
    values (_now, _since, _first, _page)
    on conflict do nothing;
  end if;
  return next;
end
$$;

comment on function queues.sweep(integer) is
  'Makes tasks with ended leases ready again, or dead_letter if their attempts are used up, and counts both.';
