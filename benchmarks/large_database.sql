-- The parts of benchmarks/large_database.py. Names in braces are its numbers.

-- part: plan
-- What happens to each task follows from hashes of its number, so that every database of a size is the same. The time
-- is that of creation. Tasks that are due or run are seconds old, the others up to two weeks.
create unlogged table public.plan as
with drawn as (
  select n, (hashint4(n)::bigint & 2147483647) / 2147483648.0 as a,
    (hashint4extended(n, 1) & 2147483647) / 2147483648.0 as b,
    (hashint4extended(n, 2) & 2147483647) / 2147483648.0 as c
  from generate_series({first}, {last}) n),
kinds as (
  select n, c, floor({types} * a * a)::integer as type_number,
    case when b < 0.873 then 'succeeded' when b < 0.882 then 'failed' when b < 0.891 then 'dead_letter'
      when b < 0.9 then 'cancelled' when b < 0.97 then 'scheduled' when b < 0.98 then 'suspended'
      when b < 0.99 then 'pending' when b < 0.993 then 'retrying' when b < 0.995 then 'keyed'
      when b < 0.999 then 'leased' else 'deleted' end as kind
  from drawn),
times as (
  select k.n, k.c, k.kind, case when k.kind = 'keyed' then k.n % {queues} else k.type_number end as type_number,
    queues.clock() - (1 - k.c) * case when k.kind in ('pending', 'retrying', 'keyed', 'leased')
      then interval '50 seconds' else interval '14 days' end as at
  from kinds k)
select t.n, t.c, t.kind, t.type_number, t.at, 'queue_' || t.type_number % {queues} as queue,
  'queue_' || t.type_number % {queues} || '.kind_' || t.type_number || '.v1' as type,
  case when t.kind = 'keyed' then 'customer-' || t.n % 1000 end as key,
  (lpad(to_hex((extract(epoch from t.at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(t.n % 4096), 3, '0') || '8'
    || lpad(to_hex(t.n), 15, '0'))::uuid as task_id
from times t;

-- part: lanes
insert into queues.lane (made_at, queue, type, priority, concurrency_key, namespace)
select queues.clock(), p.queue, p.lane_type, 0, p.key, session_user
from (
  select queue, case when type_number < 32 * {queues} then type else '' end as lane_type, key
  from public.plan where kind in ('scheduled', 'suspended', 'pending', 'retrying', 'keyed', 'leased')
  union select queue, type, '' from public.plan where kind = 'keyed') p
where not exists (select from queues.lane l where l.queue = p.queue and l.type = p.lane_type and l.priority = 0
  and l.concurrency_key is not distinct from p.key)
group by 2, 3, 5;
create index on public.plan (kind);
analyze public.plan, queues.lane;

-- part: tasks
insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
  namespace, idempotency_key, concurrency_key, payload)
select p.task_id, p.at, p.at, 0, 5, p.type, p.queue, 'python', session_user, session_user,
  case when p.n % 5 = 0 then 'order-' || p.n end, p.key,
  jsonb_build_object('order_id', p.n, 'customer', 'c' || p.n % 5000, 'amount', round((p.c * 100)::numeric, 2),
    'note', 'as agreed by telephone')
from public.plan p order by p.task_id;
insert into queues.task_key (type, idempotency_key, namespace, task_id)
select p.type, 'order-' || p.n, session_user, p.task_id from public.plan p where p.n % 5 = 0;
insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, result)
select p.task_id, p.n, p.at + interval '50 ms', p.at + interval '60 ms', p.at + interval '60 ms' + p.c * interval '2 s',
  case p.kind when 'dead_letter' then 5 else 1 end, p.kind, 'worker-' || p.n % {workers},
  case p.kind when 'succeeded' then '{"receipt": 12345}'::jsonb end
from public.plan p where p.kind in ('succeeded', 'failed', 'dead_letter', 'cancelled') order by p.task_id;
insert into queues.ready (task_id, run_at, lane_id, attempt)
select p.task_id, case p.kind when 'scheduled' then queues.clock() + p.c * interval '30 days'
    when 'suspended' then queues.clock() + p.c * interval '3 days'
    when 'retrying' then queues.clock() + p.c * interval '5 minutes' else p.at end, l.lane_id,
  case p.kind when 'retrying' then 2 else 0 end
from public.plan p
join queues.lane l on l.queue = p.queue and l.priority = 0 and l.concurrency_key is not distinct from p.key
  and l.type = case when p.type_number < 32 * {queues} then p.type else '' end
where p.kind in ('scheduled', 'suspended', 'pending', 'retrying', 'keyed') order by p.task_id;
insert into queues.lease (task_id, token, claimed_at, lease_until, started_at, lane_id, attempt, lease_ms, limited,
  worker_id, concurrency_key)
select p.task_id, nextval('queues.token'), p.at, queues.clock() + interval '1 day',
  case when p.n % 5 > 0 then p.at end, l.lane_id, 1, 30000, case when p.n % 2 = 0 then true end,
  'worker-' || p.n % {workers},
  case when p.n % 4 = 0 then queues.qualified_key(session_user, 'customer-' || p.n % 1000) end
from public.plan p
join queues.lane l on l.queue = p.queue and l.priority = 0 and l.concurrency_key is null
  and l.type = case when p.type_number < 32 * {queues} then p.type else '' end
where p.kind = 'leased' order by p.task_id;
insert into queues.deletion (task_id, deleted_at, deleted_by, reason, parked_run_at, parked_attempt)
select p.task_id, queues.clock(), 'anna', 'not needed', p.at, 0 from public.plan p where p.kind = 'deleted';
insert into queues.deletion (task_id, deleted_at, deleted_by, reason)
select p.task_id, queues.clock(), 'anna', 'not needed' from public.plan p where p.kind = 'cancelled' and p.n % 3 = 0;

-- part: history
insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind,
  message, worker_id, error_group)
select p.task_id, p.n, p.at, p.at, p.at + p.c * interval '2 s',
  case when p.kind in ('succeeded', 'retrying') then queues.clock() + interval '1 minute' end, 1, false,
  'handler_error', e.message, 'worker-' || p.n % {workers},
  queues.group_of_error(t.type, 'handler_error', null, e.message)
from public.plan p
join queues.task t on t.task_id = p.task_id
cross join lateral (
  select (array['ConnectionError: the provider refused order ', 'TimeoutError: no response for order ',
    'CardDeclined: the card of order ', 'KeyError: no such customer in order ', 'ValueError: amount of order '])
    [1 + p.n % 5] || p.n as message offset 0) e
where p.kind in ('failed', 'dead_letter', 'retrying') or p.kind = 'succeeded' and p.n % 40 = 0 order by p.at;
insert into queues.act (task_id, act, occurred_at, actor, reason)
select p.task_id, case p.kind when 'cancelled' then 'cancelled' when 'suspended' then 'suspended' else 'retried' end,
  p.at, 'anna', 'as agreed'
from public.plan p where p.kind in ('cancelled', 'suspended') or p.kind = 'succeeded' and p.n % 100 = 0;
insert into queues.step (token, ended_at, task_id, number, took_ms, tries, kind, name, result)
select p.n, p.at + s * interval '1 s', p.task_id, s, 900, 1, 's', 'step ' || s, '{"ok": true}'
from public.plan p cross join generate_series(1, 5) s
where p.kind = 'suspended' or p.kind = 'succeeded' and p.n % 50 = 0;
insert into queues.wait (task_id, name, until, signal)
select p.task_id, 'approval', queues.clock() + p.c * interval '3 days', 'approved'
from public.plan p where p.kind = 'suspended';
insert into queues.signal (task_id, sent_at, bytes, name, sent_by, payload)
select p.task_id, p.at, octet_length('{"text": "soon"}'), 'comment', 'anna', '{"text": "soon"}'
from public.plan p where p.kind = 'suspended';
insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent)
select q.parent_id, 'orders', q.place, q.task_id, true, true
from (
  select p.task_id, first_value(p.task_id) over w as parent_id, row_number() over w as place
  from public.plan p where p.kind = 'succeeded' and p.n % 25 < 2
  window w as (partition by p.n / 500 order by p.n)) q
where q.parent_id <> q.task_id;
insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent)
select b.task_id, '', row_number() over (), p.task_id, true, false
from (select task_id from public.plan where kind = 'suspended' order by n limit 1) b
cross join public.plan p where p.kind = 'succeeded' and p.n % 50 = 7;

-- part: processes
insert into queues.process_instance (process, process_id, created_at, created_by, namespace, updated_at, decision,
  reason, next_run_at, task_id, trouble, troubled_at, ended_at)
select v.process, p.n, p.at, session_user, session_user, p.at, v.decision, 'as planned',
  case when v.decision = 'wait' then queues.clock() + p.c * interval '1 day' end,
  case when v.decision = 'wait' then p.task_id end, case when v.decision = 'wait' and p.n % 1000 = 7 then 'failing' end,
  case when v.decision = 'wait' and p.n % 1000 = 7 then queues.clock() - interval '1 minute' end,
  case when v.decision <> 'wait' then p.at end
from public.plan p
cross join lateral (
  select 'refund', case when p.kind in ('succeeded', 'failed') then 'succeeded' else 'wait' end where p.n % 20 = 7
  union all select 'comms.send_email', 'succeeded' where p.n % 50 = 8) v(process, decision);
insert into comms.message (message_id, channel, created_at, created_by, namespace) overriding system value
select p.n, 'email', p.at, session_user, session_user from public.plan p where p.n % 50 = 8;
insert into comms.message_content (message_id, channel, recipient, subject, text_body)
select p.n, 'email', 'customer' || p.n || '@example.org', 'Your order', 'Thank you.'
from public.plan p where p.n % 50 = 8;
insert into comms.send_task (send_task_id, channel, message_id, created_at, created_by, namespace, scheduled_at,
  max_attempts, retry_for, when_unknown, send_key) overriding system value
select p.n, 'email', p.n, p.at, session_user, session_user, p.at, 5, '1 day', 'retry', gen_random_uuid()
from public.plan p where p.n % 50 = 8;
insert into comms.send_task_scheduled (send_task_id, attempt, scheduled_at, run_at, task_id)
select p.n, 1, p.at, p.at, p.task_id from public.plan p where p.n % 50 = 8;
insert into comms.send_task_succeeded (send_task_id, attempt, succeeded_at, provider, provider_message_id)
select p.n, 1, p.at, 'smtp', 'm' || p.n from public.plan p where p.n % 50 = 8;
insert into comms.send_task_supervised (send_task_id, run, supervised_at, decision, reason)
select p.n, 1, p.at, 'succeeded', 'the provider accepted it' from public.plan p where p.n % 50 = 8;

-- part: events
with made as (
  insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, event_type, aggregate_id,
    emitted_by, namespace, deliveries, task_id, data)
  select md5('event ' || p.n)::uuid, nextval('queues.event_number'), pg_current_xact_id(), p.at, 'order.changed',
    'order-' || p.n, session_user, session_user, 1, p.task_id, '{"state": "paid"}'
  from public.plan p where p.n % 4 = 0 order by p.at
  returning event_id, event_number, aggregate_id, occurred_at, task_id, namespace),
chosen as (
  select m.*, p.n, (select min(s.subscription_id) from queues.subscription s where s.name = 'warehouse' || p.n % 5)
    as subscription_id
  from made m join public.plan p on p.task_id = m.task_id),
sent as (
  insert into queues.delivered (event_id, subscription_id, delivered_at, attempt, dispatcher_id)
  select c.event_id, c.subscription_id, c.occurred_at, 1, 'dispatcher-1' from chosen c where c.n % 100 > 7),
dead as (
  insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt, last_error)
  select c.event_id, c.subscription_id, c.occurred_at, 20, 'HTTP 500' from chosen c where c.n % 100 = 4)
insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
  attempt, counted)
select c.subscription_id, c.namespace, c.aggregate_id, c.event_number, c.event_id, queues.clock(), queues.clock(), 0,
  false
from chosen c where c.n % 100 in (0, 1, 2, 3, 5, 6, 7);

-- part: fleet
insert into queues.worker (worker_id, hostname, pid, version, queues, type_prefixes, concurrency, in_flight, running,
  idle, started_at, last_heartbeat, timeout, heartbeat)
select 'worker-' || n, 'host-' || n % 20, 1000 + n, '1.0.0',
  array(select 'queue_' || (n + k) % {queues} from generate_series(0, 9) k), '{}', 40, 20, 16, false,
  queues.clock() - interval '1 day', queues.clock() + interval '1 day', '60 s', '10 s'
from generate_series(0, {workers} - 1) n;
insert into queues.worker_environment (worker_id, recorded_at, environment)
select w.worker_id, w.started_at, '{"python": "3.12.3", "commit": "abc", "packages": {"shop": "2.1"}}'
from queues.worker w;
insert into queues.leadership (worker_id, term, leader_since, leader_until)
values ('worker-0', 1, queues.clock(), queues.clock() + interval '1 day');
insert into queues.loss (worker_id, hostname, pid, started_at, last_heartbeat, lost_at, recovered, dead)
select 'gone-' || n, 'host-1', n, queues.clock(), queues.clock() - n * interval '1 hour',
  queues.clock() - n * interval '1 hour', 5, 0
from generate_series(1, 500) n;
insert into queues.task_type (type, queue, priority, max_attempts, executor, registered_at, registered_by)
select 'queue_' || n % {queues} || '.kind_' || n || '.v1', 'queue_' || n % {queues}, 0, 5, 'python', queues.clock(),
  session_user
from generate_series(0, {types} - 1) n;
insert into queues.task_limit (subject, name, max_running, rate, per, tokens, counted_at, set_at, set_by)
select 'queue', 'queue_' || n, 500, 1000, '1 minute'::interval, 1000, queues.clock(), queues.clock(), 'anna'
from generate_series(0, 19) n
union all
select 'type', 'queue_' || n || '.kind_' || n || '.v1', 50, null, null, 0, queues.clock(), queues.clock(), 'anna'
from generate_series(0, 39) n;
select queues.pause('queue_39', 'the provider is down');
insert into queues.schedule (name, namespace, version, next_at, decided_at, plan_after, cron, tz, catch_up,
  catch_up_limit, jitter, overlap, task, for_process, created_by, created_at, changed_at)
select 'schedule-' || n, session_user, 1, queues.clock() + n * interval '1 minute' + interval '1 hour', queues.clock(),
  queues.clock(), '0 3 * * *', 'Europe/Berlin', 'latest', 1, '0', 'allow',
  jsonb_build_object('type', 'queue_0.kind_0.v1'), false, session_user, queues.clock(), queues.clock()
from generate_series(1, 200) n;
insert into queues.schedule_firing (schedule, namespace, nominal_at, decided_at, decision)
select 'schedule-' || n, session_user, queues.clock() - k * interval '1 hour', queues.clock() - k * interval '1 hour',
  'missed'
from generate_series(1, 200) n, generate_series(1, 500) k;
select queues.subscribe('warehouse' || n, 'console', '-', array['order.*'])
from generate_series(0, 4) n;
insert into queues.dispatcher (dispatcher_id, hostname, waiting, sinks, unusable, started_at, last_seen)
values ('dispatcher-1', 'host-1', '{}', '{http}', '{}', queues.clock(), queues.clock() + interval '1 day');
insert into queues.process (process, kind, schema_name, root_table, supervisor, repair, cancel, history, registered_at,
  registered_by)
select 'refund', p.kind, p.schema_name, p.root_table, 'comms.refund_supervisor', p.repair, p.cancel, p.history,
  p.registered_at, p.registered_by
from queues.process p where p.process = 'comms.send_email';
insert into queues.access_act (act, occurred_at, actor, reason)
select 'logged_in', queues.clock(), 'anna', null from generate_series(1, 20000);
insert into comms.mailbox_message (channel, idempotency_key, kept_at, recipient, subject, text_body)
select 'email', 'key ' || n, queues.clock(), 'c' || n || '@example.org', 'Your order', 'Thank you.'
from generate_series(1, 1000) n;

-- part: activity
-- A tenth of the types was active all day, the others in the last two hours. In the order in which workers would have
-- reported it. The clock is read once: five minutes may end meanwhile.
with clock as materialized (select queues.clock() as now)
insert into queues.activity (at, queue, type, succeeded, failed, retrying, run_seconds, delay_seconds, due, running)
select date_bin('5 minutes', clock.now, '2000-01-01 00:00:00+00') - s * interval '5 minutes', t.queue, t.type,
  20 + t.n % 50, t.n % 7, t.n % 3, t.n % 100, t.n % 30, t.n % 5, t.n % 3
from (
  select n, 'queue_' || n % {queues} as queue, 'queue_' || n % {queues} || '.kind_' || n || '.v1' as type
  from generate_series(0, {types} - 1) n
  union all select n, 'queue_' || n, '' from generate_series(0, {queues} - 1) n
  union all select 0, '', '') t
cross join lateral generate_series(0, case when t.n % 10 = 0 or t.type = '' then 288 else 24 end) s
cross join clock
order by 1, 2;

-- part: samples
with clock as materialized (select queues.clock() as now)
insert into queues.sample (taken_at, transaction_id, bytes, enqueued_total, finished_total, errors_total, due,
  scheduled, running, delay_p50, delay_p99)
select date_bin('10 seconds', clock.now, '2000-01-01 00:00:00+00') - s * interval '10 seconds', '100'::xid8,
  1000000000, 10000000 - s * 10, 10000000 - s * 10, 100000 - s, s % 1000, 60000, s % 100, 0.01, 0.2
from clock cross join generate_series(1, 17000) s;
