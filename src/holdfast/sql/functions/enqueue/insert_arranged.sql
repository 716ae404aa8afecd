-- Inserts a batch like insert_tasks, of which some tasks come after others, or are unique or debounced. The
-- idempotency_key of a unique or debounced task is its key among those. If several of one batch have one type and key,
-- they are one task: the last one if it is debounced, else the first.
-- Internal: called by insert_tasks. Locks: the keys of unique tasks in the order of (type, key), and ready rows of
-- those that hold them; then as insert_tasks.
create or replace function queues.insert_arranged(tasks jsonb, for_process boolean, enqueued_by text, namespace text)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _options constant text[] := array['after', 'when', 'unique', 'debounce', 'debounce_max'];
  _size constant integer := jsonb_array_length(tasks);
  _elements jsonb[] := array(
    select e.element - array(select k from unnest(_options) k where e.element -> k = 'null')
    from jsonb_array_elements(tasks) with ordinality e(element, n) order by e.n);
  _winners integer[] := array(select generate_series(1, _size));
  _held uuid[] := array_fill(null::uuid, array[_size]);
  _inserted integer[];
  _one record;
  _found record;
begin
  for _one in select n from generate_series(1, _size) n where _elements[n] ?| _options loop
    perform queues.check_arrangement(_elements[_one.n], case when _size > 1 then format('tasks[%s].', _one.n - 1)
      else '' end);
  end loop;
  if _size > 1 then
    -- All of them, so that an error names the place in this batch, whichever of them are inserted in the end.
    perform queues.read_tasks(
      (select jsonb_agg(e.element - _options order by e.n) from unnest(_elements) with ordinality e(element, n)),
      _size, for_process, queues.clock(), (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  end if;
  -- In the order of the keys, so that two batches do not wait for each other.
  for _one in
    select g.type, g.key, array_agg(g.n order by g.n) as places,
      case when bool_or(g.debounced) then max(g.n) else min(g.n) end as winner
    from (
      select n, _elements[n] ->> 'type' as type, _elements[n] ->> 'idempotency_key' as key,
        _elements[n] ? 'debounce' as debounced
      from generate_series(1, _size) n where _elements[n] ?| array['unique', 'debounce']) g
    group by g.type, g.key order by g.type collate "C", g.key collate "C"
  loop
    select f.task_id, f.run_at into _found from queues.find_unique(_one.type, _one.key,
      _elements[_one.winner] ->> 'unique', (_elements[_one.winner] ->> 'debounce')::interval,
      (_elements[_one.winner] ->> 'debounce_max')::interval, namespace) f;
    for _place in 1..cardinality(_one.places) loop
      _winners[_one.places[_place]] := _one.winner;
    end loop;
    _held[_one.winner] := _found.task_id;
    _elements[_one.winner] := _elements[_one.winner] - 'idempotency_key' || case
      when _found.run_at is null then '{}' else jsonb_build_object('run_at', _found.run_at) end;
  end loop;

  _inserted := array(select n from generate_series(1, _size) n where _winners[n] = n and _held[n] is null);
  for _one in
    select i.task_id, i.created, _inserted[i.n] as place from queues.insert_tasks(
      (select coalesce(jsonb_agg(_elements[p.n] - _options order by p.place), '[]')
        from unnest(_inserted) with ordinality p(n, place)),
      for_process, enqueued_by, namespace) with ordinality i(task_id, created, n)
  loop
    _held[_one.place] := _one.task_id;
    if _elements[_one.place] ?| array['unique', 'debounce'] then
      perform queues.store_unique(_one.task_id, tasks -> (_one.place - 1) ->> 'idempotency_key');
    elsif not _one.created then
      _inserted := array_remove(_inserted, _one.place);
    end if;
  end loop;
  perform queues.hold_back(g.task_ids, g.after, g.condition, namespace)
  from (
    select array_agg(_held[p.n] order by p.n) as task_ids,
      array(select a::uuid from jsonb_array_elements_text(_elements[min(p.n)] -> 'after') a) as after,
      coalesce(_elements[min(p.n)] ->> 'when', 'succeeded') as condition
    from unnest(_inserted) p(n) where _elements[p.n] ? 'after'
    group by _elements[p.n] -> 'after', _elements[p.n] ->> 'when') g;
  return query select _held[_winners[n]], n = any (_inserted) from generate_series(1, _size) n;
end
$$;

comment on function queues.insert_arranged(jsonb, boolean, text, text) is
  'Inserts a batch like insert_tasks, of which some tasks come after others, or are unique or debounced.';
