-- What a front is made of: queries, which are run on a shard, and on the front itself.

-- section: catalog
-- Every schema, function and view that a front may offer, as JSON: what a front needs to declare the same.
select 'schema' as kind, n.nspname::text as object, n.nspname::text as identity,
  pg_catalog.jsonb_build_object('grantees', coalesce((
    select pg_catalog.jsonb_agg(
        case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end order by 1)
    from pg_catalog.aclexplode(n.nspacl) a
    where a.grantee <> n.nspowner and a.privilege_type = 'USAGE'), '[]')) as described
from pg_catalog.pg_namespace n
where n.nspname in ('queues', 'internal', 'comms')
  and n.nspowner = (select q.nspowner from pg_catalog.pg_namespace q where q.nspname = 'queues')
union all
select 'function', n.nspname || '.' || p.proname, p.oid::pg_catalog.regprocedure::text,
  pg_catalog.jsonb_build_object(
    'arguments', pg_catalog.pg_get_function_arguments(p.oid),
    'result', pg_catalog.pg_get_function_result(p.oid),
    'returns_set', p.proretset,
    'writes', p.provolatile = 'v',
    'inputs', coalesce((
      select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(a.name, pg_catalog.format_type(a.type, null)) order by a.n)
      from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargnames, p.proargmodes::text[])
        with ordinality a(type, name, mode, n)
      where coalesce(a.mode, 'i') = 'i'), '[]'),
    'columns', case
      when 't' = any (p.proargmodes) or 'o' = any (p.proargmodes) then (
        select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(a.name, pg_catalog.format_type(a.type, null)) order by a.n)
        from unnest(p.proallargtypes, p.proargnames, p.proargmodes::text[]) with ordinality a(type, name, mode, n)
        where a.mode in ('t', 'o'))
      else (
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(
          a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)) order by a.attnum)
        from pg_catalog.pg_type t join pg_catalog.pg_attribute a on a.attrelid = t.typrelid
        where t.oid = p.prorettype and a.attnum > 0 and not a.attisdropped) end,
    'composite', (
      select t.typname from pg_catalog.pg_type t join pg_catalog.pg_class c on c.oid = t.typrelid
      where t.oid = p.prorettype and c.relkind = 'c'),
    'grantees', coalesce((
      select pg_catalog.jsonb_agg(
        case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end order by 1)
      from pg_catalog.aclexplode(p.proacl) a where a.grantee <> p.proowner), '[]'))
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname in ('queues', 'internal', 'comms')
  and n.nspowner = (select q.nspowner from pg_catalog.pg_namespace q where q.nspname = 'queues')
union all
select 'view', n.nspname || '.' || c.relname, n.nspname || '.' || c.relname,
  pg_catalog.jsonb_build_object(
    'columns', (
      select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(
          a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)) order by a.attnum)
      from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0),
    'is_row_type', exists (
      select from pg_catalog.pg_proc p where p.prorettype = c.reltype and p.proacl is not null),
    'grantees', coalesce((
      select pg_catalog.jsonb_agg(
        case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end order by 1)
      from pg_catalog.aclexplode(c.relacl) a where a.grantee <> c.relowner), '[]'))
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('queues', 'internal', 'comms')
  and n.nspowner = (select q.nspowner from pg_catalog.pg_namespace q where q.nspname = 'queues') and c.relkind = 'v'
order by 1, 2;

-- section: routes
-- How a front answers each function and each view that a role may use: every one has exactly one row here, and a test
-- says so. A front is generated from these rows and the catalog of the first shard.
--
-- Functions
--   id ARGUMENT     the shard whose number is in this id
--   ids ARGUMENT    the shards of these ids, each asked for its own
--   task            the shard of a new task, by shard_key, concurrency_key, type and key, else any
--   batch ARGUMENT  new tasks, each to its shard, and the answers in the order of the batch
--   after ARGUMENT  new tasks on the shard of these ids, which have to be on one
--   unique          the shard of this type, executor and payload, if that is the key of a unique task; else as task
--   text ARGUMENTS  the shard of these texts, else any
--   first           the first shard, which has what exists once: schedules, sessions, messages, processes
--   each            all shards, one after the other. Of a read, a shard that is lost is left out where the session asks
--                   for it (holdfast.partial). Of a write, the others are done before the error is raised.
--   each ARGUMENT   the same, and refused with this argument, which means something on one shard only
--   numbered ARGUMENT  the first shard, then the others with its answer as this argument
--   shard           refused: for a worker or a dispatcher, which connects to its shard
--   none            not offered: it serves only other functions of the same database
-- The last column says what becomes of the answers of several shards, which are called "answer". Without it: true if
-- one is, the sum of numbers, all rows.
--
-- Views
--   first           of the first shard
--   each            the rows of all shards, with the name of the shard as the last column, or as the last column says
select route.object, route.kind, route.detail, route.merge
from (values
  ('queues.enqueue', 'task', null, null),
  ('queues.enqueue_many', 'batch', 'tasks', null),
  ('queues.enqueue_for_token', 'batch', 'tasks', null),
  ('queues.enqueue_for_client', 'none', null, null),
  ('queues.enqueue_for_process', 'none', null, null),
  ('queues.enqueue_simple', 'none', null, null),
  ('queues.enqueue_after', 'after', 'after', null),
  ('queues.enqueue_unique', 'unique', null, null),

  ('queues.cancel', 'id', 'task_id', null),
  ('queues.retry', 'id', 'task_id', null),
  ('queues.replay', 'id', 'task_id', null),
  ('queues.delete_task', 'id', 'task_id', null),
  ('queues.restore_task', 'id', 'task_id', null),
  ('queues.reschedule', 'id', 'task_id', null),
  ('queues.explain', 'id', 'task_id', null),
  ('queues.watch', 'id', 'task_id', null),
  ('queues.watch_many', 'ids', 'task_ids', null),
  ('queues.tasks_of', 'ids', 'task_ids', null),
  ('queues.task_events_of', 'ids', 'task_ids', null),
  ('queues.task_errors_of', 'ids', 'task_ids', null),
  ('queues.list_tasks', 'each', null, 'order by answer.task_id desc limit $6'),
  ('queues.find_tasks', 'each', null,
    -- A shard that says where its next page begins has not looked further: the page ends where the first one stopped.
    'with answer as materialized (select * from {answers}),
       bound as (
         select (select a.next from answer a where a.next is not null order by a.next desc limit 1) as next),
       page as (
         select array(
           select id from answer a cross join unnest(a.task_ids) id cross join bound b
           where b.next is null or id >= b.next order by id desc) as ids)
     select p.ids[1:$6], case when cardinality(p.ids) > $6 then p.ids[$6] else b.next end
     from page p cross join bound b'),
  ('queues.act_on_tasks', 'ids', 'task_ids', null),
  ('queues.count_tasks', 'each', null,
    'select answer.status, sum(answer.tasks)::bigint, bool_or(answer.more) group by answer.status'),
  ('queues.list_error_groups', 'each', null,
    'with answer as materialized (select * from {answers}),
       part as (
         select a.error_group, n, sum(a.trend[n])::integer as errors
         from answer a cross join generate_series(1, 24) n group by a.error_group, n)
     select a.error_group, min(a.type), min(a.kind), min(a.exception), min(a.title), sum(a.errors)::bigint,
       sum(a.ended)::bigint, sum(a.type_errors)::bigint, min(a.first_seen), max(a.last_seen),
       (array_agg(a.example_id order by a.last_seen desc))[1],
       (select array_agg(p.errors order by p.n) from part p where p.error_group = a.error_group),
       (array_agg(a.step order by a.last_seen desc))[1], max(a.counted_since)
     from answer a group by a.error_group order by 6 desc, 10 desc limit $3'),

  ('queues.fork', 'id', 'task_id', null),
  ('queues.run_timeline', 'id', 'task_id', null),
  ('queues.related_to', 'id', 'task_id', null),
  ('queues.batch_members', 'id', 'task_id', null),
  ('queues.children_of', 'id', 'task_id', null),
  ('queues.signal', 'id', 'task_id', null),
  ('queues.read_callback', 'id', 'task_id', null),
  ('queues.answer_callback', 'id', 'task_id', null),
  ('queues.signal_key', 'text', 'type idempotency_key', null),
  ('queues.step_kind', 'none', null, null),
  ('queues.read_results', 'shard', null, null),
  ('queues.read_steps', 'shard', null, null),
  ('queues.record_step', 'shard', null, null),
  ('queues.record_steps', 'shard', null, null),
  ('queues.record_changes', 'shard', null, null),
  ('queues.start_children', 'shard', null, null),
  ('queues.due_chores', 'shard', null, null),
  ('queues.wake_joined', 'shard', null, null),
  ('queues.wake_waiting', 'shard', null, null),

  ('queues.pause', 'each', null, null),
  ('queues.resume', 'each', null, null),
  ('queues.set_limit', 'each', null, null),
  ('queues.drop_limit', 'each', null, null),
  ('queues.set_retention', 'each', null, null),
  ('queues.drop_retention', 'each', null, null),
  -- Until no shard has more; one that is done looks again at what it has kept.
  ('queues.prune', 'each', null,
    'with answer as materialized (select * from {answers})
     select sum(a.pruned)::integer, sum(a.examined)::integer,
       (select b.next from answer b where b.next is not null order by b.next limit 1)
     from answer a'),
  ('queues.prune_events', 'each', null, null),
  ('queues.prune_inbox', 'each', null, null),
  ('queues.prune_processes', 'each', null, null),
  ('queues.sweep', 'each', null, 'select sum(answer.recovered)::integer, sum(answer.dead)::integer'),
  ('queues.do_chores', 'each', null, null),
  ('queues.postpone_chore', 'each', null, null),
  ('queues.recover_workers', 'each', null, null),
  ('queues.take_sample', 'each', null, null),
  ('queues.count_activity', 'each', null,
    'select max(answer.counted_at), sum(answer.enqueued)::bigint, sum(answer.finished)::bigint,
       sum(answer.errors)::bigint'),
  ('queues.list_activity', 'each', null,
    'select answer.at, sum(answer.due), sum(answer.scheduled), sum(answer.running), sum(answer.enqueued_per_second),
       sum(answer.finished_per_second), sum(answer.errors_per_second), max(answer.delay_p50), max(answer.delay_p99)
     group by answer.at order by answer.at'),
  ('queues.record_activity', 'shard', null, null),
  ('queues.list_activity_of', 'each', null,
    'select answer.at, max(answer.seconds), sum(answer.succeeded)::bigint, sum(answer.failed)::bigint,
       sum(answer.retrying)::bigint, sum(answer.cancelled)::bigint,
       sum(answer.mean_delay * (answer.succeeded + answer.failed + answer.retrying + answer.cancelled))
         / nullif(sum(answer.succeeded + answer.failed + answer.retrying + answer.cancelled), 0)::double precision,
       sum(answer.mean_run * (answer.succeeded + answer.failed + answer.retrying + answer.cancelled))
         / nullif(sum(answer.succeeded + answer.failed + answer.retrying + answer.cancelled), 0)::double precision,
       sum(answer.due)::bigint, sum(answer.running)::bigint
     group by answer.at order by answer.at'),
  ('queues.rank_types', 'each', null,
    'select answer.ranking, answer.queue, answer.type, sum(answer.succeeded)::bigint, sum(answer.failed)::bigint,
       sum(answer.retrying)::bigint, sum(answer.cancelled)::bigint, avg(answer.mean_seconds)
     group by answer.ranking, answer.queue, answer.type
     order by pg_catalog.array_position(array[''busiest'', ''slowest'', ''failing''], answer.ranking),
       case answer.ranking when ''busiest''
       then sum(answer.succeeded + answer.failed + answer.retrying + answer.cancelled)::double precision
       when ''slowest'' then avg(answer.mean_seconds)
       else sum(answer.failed + answer.retrying)::double precision end desc, 2, 3'),
  ('queues.installed_units', 'first', null, null),
  ('queues.health', 'each', null,
    'select answer.check_name, answer.level,
       pg_catalog.concat_ws('' '', holdfast_front.shard_name(answer.shard_number), answer.subject),
       answer.value, answer.code,
       answer.facts || pg_catalog.jsonb_build_object(''shard'', holdfast_front.shard_name(answer.shard_number)),
       answer.error
     order by pg_catalog.array_position(array[''red'', ''amber'', ''green''], answer.level), answer.check_name,
       answer.value desc nulls last'),
  ('queues.add_to_namespace', 'each', null, null),
  ('queues.remove_from_namespace', 'each', null, null),

  ('queues.emit', 'text', 'aggregate_id', null),
  ('queues.receive', 'text', 'source event_id', null),
  ('queues.tail_events', 'each', 'after_transaction', 'order by answer.occurred_at'),
  ('queues.subscribe', 'each', null, 'select min(answer.value)'),
  ('queues.unsubscribe', 'each', null, null),
  ('queues.pause_subscription', 'each', null, null),
  ('queues.resume_subscription', 'each', null, null),
  ('queues.rotate_secret', 'each', null, 'select min(answer.value)'),
  ('queues.test_subscription', 'first', null, null),
  ('queues.redrive_events', 'each', null, null),
  ('queues.list_deliveries', 'each', null, 'order by answer.settled_at desc, answer.attempt desc limit $3'),
  ('queues.dispatcher_heartbeat', 'shard', null, null),
  ('queues.claim_events', 'shard', null, null),
  ('queues.settle_events', 'shard', null, null),
  ('queues.retire_dispatcher', 'shard', null, null),

  ('queues.add_schedule', 'first', null, null),
  ('queues.add_schedule_for_client', 'none', null, null),
  ('queues.add_schedule_for_process', 'none', null, null),
  ('queues.declare_schedules', 'first', null, null),
  ('queues.pause_schedule', 'first', null, null),
  ('queues.resume_schedule', 'first', null, null),
  ('queues.remove_schedule', 'first', null, null),
  ('queues.run_schedule', 'first', null, null),

  ('queues.create_token', 'numbered', 'token_id', null),
  ('queues.renew_token', 'each', null, null),
  ('queues.revoke_token', 'each', null, null),
  ('queues.check_token', 'first', null, null),
  ('queues.open_session', 'first', null, null),
  ('queues.check_session', 'first', null, null),
  ('queues.close_session', 'first', null, null),
  ('queues.record_reveal', 'id', 'task_id', null),
  ('queues.namespace', 'first', null, null),
  ('queues.may_read_all', 'first', null, null),
  ('queues.has_role', 'first', null, null),
  ('queues.clock', 'first', null, null),
  ('queues.spec_hash', 'first', null, null),
  ('queues.status_of', 'first', null, null),
  ('queues.process_status_of', 'first', null, null),
  ('queues.process_history', 'first', null, null),
  ('queues.start_process', 'first', null, null),
  ('queues.cancel_process', 'first', null, null),
  ('queues.list_processes', 'first', null, null),
  ('queues.list_process_instances', 'first', null, null),
  ('queues.nudge_process', 'first', null, null),
  ('queues.watch_processes', 'first', null, null),
  ('queues.tokens_at', 'none', null, null),
  ('queues.held_by', 'each', null, 'order by answer.started_at, answer.claimed_at, answer.task_id limit $2'),
  ('queues.list_waiting_keys', 'each', null, 'order by answer.waiting desc, answer.oldest_due limit $2'),

  ('comms.create_email_message', 'first', null, null),
  ('comms.create_sms_message', 'first', null, null),
  ('comms.kickoff_send_email_task', 'first', null, null),
  ('comms.kickoff_send_sms_task', 'first', null, null),
  ('comms.cancel_send_email_task', 'first', null, null),
  ('comms.cancel_send_sms_task', 'first', null, null),
  ('comms.clear_mailbox', 'each', null, null),
  ('comms.erase_messages', 'each', null, null),
  ('comms.record_delivery', 'each', null, null),
  ('comms.send_email_history', 'first', null, null),
  ('comms.send_sms_history', 'first', null, null),

  ('queues.claim', 'shard', null, null),
  ('queues.next_due', 'shard', null, null),
  ('queues.dequeue_next_available_task', 'shard', null, null),
  ('queues.heartbeat', 'shard', null, null),
  ('queues.finish', 'shard', null, null),
  ('queues.release', 'shard', null, null),
  ('queues.record_killed', 'shard', null, null),
  ('queues.last_error', 'shard', null, null),
  ('queues.handled_elsewhere', 'shard', null, null),
  ('queues.register_worker', 'shard', null, null),
  ('queues.retire_worker', 'shard', null, null),
  ('queues.mark_idle', 'shard', null, null),
  ('queues.hold_wakeups', 'shard', null, null),
  ('queues.release_wakeups', 'shard', null, null),
  ('queues.notify_idle', 'shard', null, null),
  ('queues.lead', 'shard', null, null),
  ('queues.rest', 'shard', null, null),
  ('queues.resign', 'shard', null, null),
  ('queues.fleet_state', 'shard', null, null),
  ('queues.record_environment', 'shard', null, null),
  ('queues.register_types', 'shard', null, null),
  ('queues.unserved_queues', 'shard', null, null),
  ('queues.tidy_lanes', 'shard', null, null),
  ('queues.due_schedules', 'shard', null, null),
  ('queues.next_firing', 'shard', null, null),
  ('queues.decide_schedules', 'shard', null, null),
  ('queues.prune_firings', 'shard', null, null),
  ('internal.run_function', 'shard', null, null),
  ('queues.find_orphans', 'shard', null, null),
  ('queues.processes_to_repair', 'shard', null, null),
  ('comms.reserve_send', 'shard', null, null),
  ('comms.keep_message', 'shard', null, null),
  ('comms.get_email_payload', 'shard', null, null),
  ('comms.get_sms_payload', 'shard', null, null),
  ('comms.record_email_success', 'shard', null, null),
  ('comms.record_email_failure', 'shard', null, null),
  ('comms.record_sms_success', 'shard', null, null),
  ('comms.record_sms_failure', 'shard', null, null),
  ('comms.repair_send_email', 'shard', null, null),
  ('comms.repair_send_sms', 'shard', null, null),
  ('comms.send_email_supervisor', 'shard', null, null),
  ('comms.send_sms_supervisor', 'shard', null, null),
  ('queues.nudge', 'shard', null, null),
  ('queues.actor', 'none', null, null),
  ('queues.next_check', 'none', null, null),
  ('queues.refuse_change', 'none', null, null),
  ('queues.register_process', 'shard', null, null),
  ('queues.record_process_files', 'shard', null, null),
  ('queues.note_supervision', 'shard', null, null),
  ('queues.ending_of', 'shard', null, null),
  ('queues.orphans', 'shard', null, null),
  ('queues.is_supervised', 'shard', null, null),

  ('queues.task_status', 'each', null, null),
  ('queues.task_event', 'each', null, null),
  ('queues.task_error', 'each', null, null),
  ('queues.queue_status', 'each', null,
    'select answer.queue, sum(answer.due)::bigint as due, sum(answer.scheduled)::bigint as scheduled,
       sum(answer.running)::bigint as running, min(answer.oldest_due) as oldest_due, min(answer.paused_at) as paused_at,
       min(answer.paused_by) as paused_by, min(answer.pause_reason) as pause_reason,
       sum(answer.live_workers)::bigint as live_workers
     group by answer.queue'),
  ('queues.queue_act', 'each', null, null),
  ('queues.step_status', 'each', null, null),
  ('queues.signal_status', 'each', null, null),
  ('queues.wait_status', 'each', null, null),
  ('queues.worker_status', 'each', null, null),
  ('queues.worker_loss', 'each', null, null),
  ('queues.provenance', 'each', null, null),
  ('queues.registered_type', 'each', null,
    'select distinct on (answer.type) answer.* order by answer.type, answer.registered_at desc'),
  ('queues.retention_policy', 'each', null,
    'select distinct on (answer.status, answer.type_prefix) answer.*
     order by answer.status, answer.type_prefix, answer.changed_at desc'),
  ('queues.limit_status', 'each', null,
    'select answer.subject, answer.name, max(answer.max_running) as max_running, max(answer.per_key) as per_key,
       max(answer.rate) as rate, max(answer.per) as per, sum(answer.running)::bigint as running,
       sum(answer.may_start)::integer as may_start, min(answer.set_at) as set_at, min(answer.set_by) as set_by,
       min(answer.reason) as reason
     group by answer.subject, answer.name'),
  ('queues.namespace_member', 'each', null,
    'select distinct on (answer.kind, answer.name) answer.* order by answer.kind, answer.name, answer.added_at'),
  ('queues.outbox_status', 'each', null,
    'select min(answer.subscription_id) as subscription_id, answer.name, min(answer.event_types) as event_types,
       min(answer.type_prefixes) as type_prefixes, min(answer.namespaces) as namespaces,
       min(answer.sink) as sink, min(answer.target) as target,
       (array_agg(answer.options))[1] as options, min(answer.secrets) as secrets,
       min(answer.max_attempts) as max_attempts, min(answer.created_at) as created_at,
       min(answer.created_by) as created_by, min(answer.paused_at) as paused_at, min(answer.paused_by) as paused_by,
       min(answer.pause_reason) as pause_reason, sum(answer.pending)::bigint as pending,
       sum(answer.in_flight)::bigint as in_flight, min(answer.oldest) as oldest, sum(answer.dead)::bigint as dead,
       (array[''open'', ''half-open'', ''closed''])[min(array_position(
         array[''open'', ''half-open'', ''closed''], answer.breaker))] as breaker,
       max(answer.failures) as failures, max(answer.open_until) as open_until,
       max(answer.last_failure_at) as last_failure_at, max(answer.last_error) as last_error,
       max(answer.problem) as problem
     group by answer.name'),
  ('queues.subscription_event', 'each', null, null),
  ('queues.dispatcher_status', 'each', null, null),
  ('queues.event_status', 'each', null, null),
  ('queues.delivery_status', 'each', null, null),
  ('queues.schedule_status', 'first', null, null),
  ('queues.schedule_event', 'first', null, null),
  ('queues.access_token_status', 'first', null, null),
  -- Tokens are on all shards, and what happened to them is told once. Values are revealed on the shard of the task.
  ('queues.access_event', 'each', null, 'where answer.act = ''revealed'' or answer.shard = {first}'),
  ('queues.process_status', 'first', null, null),
  ('queues.registered_process', 'first', null, null),
  ('comms.mailbox', 'each', null, null),
  ('comms.send_cap_status', 'each', null, null),
  ('comms.send_email_status', 'first', null, null),
  ('comms.send_status', 'first', null, null),
  ('comms.send_sms_status', 'first', null, null),
  ('comms.send_event', 'first', null, null)
) route(object, kind, detail, merge);

-- section: grants
-- Who has which role of Holdfast on this server. Roles of Holdfast themselves are the same everywhere.
select m.rolname as login, r.rolname as role
from pg_catalog.pg_auth_members a
join pg_catalog.pg_roles r on r.oid = a.roleid
join pg_catalog.pg_roles m on m.oid = a.member
where r.rolname ~ '^holdfast_(client|process|worker|dispatcher|operator|reader)$' and m.rolname !~ '^holdfast_[a-z]+$'
group by 1, 2 order by 1, 2;

-- section: facts
-- What should be the same on every shard, as text. Logins are compared by what they allow.
select 'number' as what, pg_catalog.format('%s, number %s', s.shard_name, s.shard_number) as fact
from queues.shard s
union all
select 'keys', pg_catalog.format('keys on %s shards', s.key_shards) from queues.shard s
union all
select 'release', pg_catalog.format('version %s of the schema, %s', i.version, pg_catalog.left(i.digest, 12))
from queues.installation i
union all
select 'unit', u.unit from queues.unit u where u.installed
union all
select 'setting', pg_catalog.format('%s = %s', s.name, s.value) from queues.setting s
union all
select 'limit', pg_catalog.format('the limit of %s %s: %s', l.subject, l.name, pg_catalog.concat_ws(', ',
  'running ' || l.max_running,
  'per key ' || l.per_key, 'rate ' || l.rate || ' per ' || l.per)) from queues.limit_status l
union all
select 'retention', pg_catalog.format('%s of types %s kept for %s', r.status,
  coalesce(nullif(r.type_prefix, ''), 'of any kind'), r.keep)
from queues.retention_policy r
union all
select 'paused queue', q.queue from queues.queue_status q where q.paused_at is not null
union all
select 'namespace', pg_catalog.format('login %s in %s', n.name, n.namespace)
from queues.namespace_member n where n.kind = 'login'
union all
select 'schedule', pg_catalog.format('schedule %s of namespace %s, which does not fire there', s.name, s.namespace)
from queues.schedule s where not queues.is_first_shard();
