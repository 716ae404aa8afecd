-- Emits worker.lost for a lost worker, if a subscription matches.
-- Internal: called by recover_workers after it has removed the worker from the registry.
create or replace function queues.emit_worker_lost(worker_id text, last_heartbeat timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.subscription s where s.engine_events
    and queues.is_subscribed(s.event_patterns, '{}', 'worker.lost', null))
  then
    perform queues.record_events(
      array[row(queues.new_task_id(), 'worker.lost', l.worker_id, l.worker_id, null, null, null, null,
        jsonb_build_object('worker_id', l.worker_id, 'hostname', l.hostname, 'last_heartbeat', l.last_heartbeat,
          'recovered', l.recovered, 'dead', l.dead), null)::queues.new_event],
      queues.clock(), keep => false)
    from queues.loss l where l.worker_id = emit_worker_lost.worker_id
      and l.last_heartbeat = emit_worker_lost.last_heartbeat;
  end if;
end
$$;

comment on function queues.emit_worker_lost(text, timestamptz) is
  'Emits worker.lost for a lost worker, if a subscription matches.';
