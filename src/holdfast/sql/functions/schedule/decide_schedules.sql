-- Decides on a batch of schedules that queues.due_schedules has listed, in its order. An element is
-- {name, namespace, version, next_at} with times, the newest due times, to fire it; without times, to plan its next
-- time; with a problem that keeps it from firing. next_at may be infinity. Returns the decisions on due times, and a
-- row with a problem for each schedule that cannot fire: the others still do. A schedule whose version is outdated, or
-- whose row another session holds, is skipped. So are the further schedules of a namespace once the call has taken 200
-- milliseconds; the first one of each namespace is always decided. What was skipped is listed again.
-- For holdfast_worker. Locks: schedules, without waiting.
create or replace function queues.decide_schedules(decisions jsonb)
returns table (name text, namespace text, nominal_at timestamptz, decision text, task_id uuid, problem text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('decisions', decisions);
  _durable constant text := queues.commit_to_disk();
  _until constant timestamptz := queues.clock() + interval '200 milliseconds';
  _one record;
  _served text[] := '{}';
  _problem text;
  _hint text;
begin
  for _one in
    select e.name, e.namespace, e.version, e.times, e.next_at, e.problem
    from jsonb_array_elements(decisions) with ordinality a(element, n)
    cross join lateral jsonb_to_record(a.element)
      as e(name text, namespace text, version bigint, times timestamptz[], next_at timestamptz, problem text)
    order by a.n
  loop
    continue when _one.namespace = any (_served) and queues.clock() > _until;
    _served := _served || _one.namespace;
    _problem := _one.problem;
    if _one.times is not null then
      begin
        return query
        select _one.name, _one.namespace, f.nominal_at, f.decision, f.task_id, null::text
        from queues.fire_schedule(_one.name, _one.namespace, _one.version, _one.times, _one.next_at) f;
        continue;
      exception
        -- The state of the server, not the schedule.
        when insufficient_resources or system_error or internal_error or transaction_rollback or lock_not_available
        then
          raise;
        when others then
          get stacked diagnostics _problem = message_text, _hint = pg_exception_hint;
          _problem := rtrim(_problem, '.') || coalesce('. ' || nullif(_hint, ''), '');
      end;
    end if;
    if queues.plan_schedule(_one.name, _one.namespace, _one.version, _one.next_at, _problem) and _problem is not null
    then
      return query select _one.name, _one.namespace, null::timestamptz, null::text, null::uuid, _problem;
    end if;
  end loop;
end
$$;

comment on function queues.decide_schedules(jsonb) is
  'Decides on a batch of schedules that queues.due_schedules has listed, in its order.';
