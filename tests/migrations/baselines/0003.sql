-- Holdfast 0.1.0, version 3 of the schema. Apply with: psql --file
\set ON_ERROR_STOP on
\set QUIET on
\encoding UTF8
begin isolation level read committed read write;

-- settings
set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
set local holdfast.version = '3';
set local holdfast.release = '0.1.0';
set local holdfast.digest = '1797ebe77780a6589ad190efa7065ca8f629cc5561e62c2f2691e633b0337fdc';
set local holdfast.force = 'off';


-- install/wait_for_others.sql
-- One migration of this database at a time. The wait is as long as it takes, whatever the login's timeouts are: they are
-- taken off by a statement of their own, because that of a statement runs from its beginning.
do $$
begin
  perform pg_catalog.set_config(s.name, '0', true)
  from pg_catalog.pg_settings s
  where s.name in ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout');
end
$$;

do $$
begin
  if pg_catalog.current_setting('server_version_num')::integer < 140000 then
    raise exception using message = pg_catalog.format(
      'PostgreSQL 14 or later is needed, and this is %s.', pg_catalog.current_setting('server_version'));
  end if;
  perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('holdfast migrate', 0));
end
$$;


-- roles.sql
-- The roles nobody logs in as. Logins are granted one or more of them; holdfast_owner is granted to nobody
-- but the login that migrates. What this login may not do itself is asked for in one message.
do $$
declare
  _login constant text := current_user;
  _superuser constant boolean := (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user);
  _creates_roles constant boolean := (
    select r.rolsuper or r.rolcreaterole from pg_catalog.pg_roles r where r.rolname = current_user);
  -- From PostgreSQL 16 on, whoever creates a role is its member, but may neither act as it nor grant another's role.
  _since_16 constant boolean := pg_catalog.current_setting('server_version_num')::integer >= 160000;
  _statement text;
  _for_dba text[] := '{}';
  _role text;
  _member text;
  _needed text;
begin
  foreach _role in array array[
    'holdfast_owner', 'holdfast_client', 'holdfast_process', 'holdfast_worker',
    'holdfast_dispatcher', 'holdfast_operator', 'holdfast_reader']
  loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = _role) then
      _statement := pg_catalog.format('create role %I nologin', _role);
      if _creates_roles then
        execute _statement;
      else
        _for_dba := _for_dba || _statement;
      end if;
    end if;
  end loop;

  for _role, _member, _needed in
    values ('holdfast_owner', _login, case when _since_16 then 'set' else 'member' end),
      ('holdfast_client', 'holdfast_process', 'member'),
      ('holdfast_reader', 'holdfast_operator', 'member')
  loop
    _statement := pg_catalog.format('grant %I to %I', _role, _member);
    if pg_catalog.to_regrole(_role) is null or pg_catalog.to_regrole(pg_catalog.quote_ident(_member)) is null then
      _for_dba := _for_dba || _statement;
    elsif pg_catalog.pg_has_role(_member, _role, _needed) then
      continue;
    elsif _superuser or (_creates_roles and not _since_16)
      or pg_catalog.pg_has_role(_login, _role, 'member with admin option')
    then
      execute _statement;
    else
      _for_dba := _for_dba || _statement;
    end if;
  end loop;

  if not pg_catalog.has_database_privilege(_login, pg_catalog.current_database(), 'create')
    and (pg_catalog.to_regnamespace('queues') is null or pg_catalog.to_regnamespace('internal') is null)
  then
    _for_dba := _for_dba
      || pg_catalog.format('grant create on database %I to %I', pg_catalog.current_database(), _login);
  end if;

  if _for_dba <> '{}' then
    raise exception using message = pg_catalog.format(
      'The login %I may not prepare the database %I. Have a DBA run this, then migrate again:', _login,
      pg_catalog.current_database()) || e'\n\n  ' || pg_catalog.array_to_string(_for_dba, e';\n  ') || ';';
  end if;
end
$$;


-- schemas.sql
-- Made by the login, for the owner: nothing else needs a right on the database.
do $$
declare
  _schema text;
begin
  foreach _schema in array array['queues', 'internal'] loop
    -- Not "if not exists": that asks for the right to create even where there is nothing to create.
    if pg_catalog.to_regnamespace(_schema) is null then
      execute pg_catalog.format('create schema %I authorization holdfast_owner', _schema);
    end if;
  end loop;
end
$$;


-- owner
set local role holdfast_owner;


-- install/decide.sql
-- Refuses schemas that are somebody else's and a schema newer than this release; else says, in holdfast.action,
-- what is to do: install, upgrade, replay or nothing.
do $$
declare
  _owner constant oid := 'holdfast_owner'::pg_catalog.regrole;
  _version constant integer := pg_catalog.current_setting('holdfast.version');
  _release constant text := pg_catalog.current_setting('holdfast.release');
  _force constant boolean := pg_catalog.current_setting('holdfast.force');
  _foreign text;
  _installed record;
begin
  select pg_catalog.string_agg(found.what, ', ' order by found.what) into _foreign
  from (
    select pg_catalog.format('schema %s, which belongs to %s', n.nspname, n.nspowner::pg_catalog.regrole) as what
    from pg_catalog.pg_namespace n
    where n.nspname in ('queues', 'internal') and n.nspowner <> _owner
    union all
    select pg_catalog.pg_describe_object(d.classid, d.objid, 0)
    from pg_catalog.pg_namespace n
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass and d.refobjid = n.oid
    where n.nspname in ('queues', 'internal')
      and not exists (
        select from pg_catalog.pg_shdepend o
        where o.dbid = (select db.oid from pg_catalog.pg_database db where db.datname = pg_catalog.current_database())
          and o.classid = d.classid and o.objid = d.objid and o.deptype = 'o' and o.refobjid = _owner)
    limit 10
  ) found;
  if _foreign is not null then
    raise exception using message = pg_catalog.format(
      'The schemas queues and internal are for Holdfast alone, and this database has %s. '
      'Move that to another schema, or give Holdfast a database of its own.', _foreign);
  end if;

  if pg_catalog.to_regclass('queues.installation') is null then
    select pg_catalog.string_agg(pg_catalog.pg_describe_object(found.classid, found.objid, 0), ', ') into _foreign
    from (
      select d.classid, d.objid from pg_catalog.pg_depend d
      where d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
        and d.refobjid in (pg_catalog.to_regnamespace('queues'), pg_catalog.to_regnamespace('internal'))
      limit 10
    ) found;
    if _foreign is not null then
      raise exception using message = pg_catalog.format(
        'This database has %s but no queues.installation, so no release of Holdfast made it. '
        'Move that to another schema, or give Holdfast a database of its own.', _foreign);
    end if;
    perform pg_catalog.set_config('holdfast.action', 'install', true);
    perform pg_catalog.set_config('holdfast.installed_version', '0', true);
    return;
  end if;

  select i.version, i.release, i.digest into _installed
  from queues.installation i order by i.version desc limit 1;
  if _installed.version is null then
    raise exception using message =
      'queues.installation is empty, so the version of this schema is unknown. Put its row back, or restore the database.';
  elsif _installed.version > _version then
    raise exception using message = pg_catalog.format(
      'This database has version %s of the schema, made by Holdfast %s; this is Holdfast %s, which knows version %s. '
      'Upgrade Holdfast here.', _installed.version, _installed.release, _release, _version);
  elsif not _force
    and pg_catalog.regexp_split_to_array(pg_catalog.regexp_replace(_installed.release, '[^0-9.].*', ''), '\.')::integer[]
      > pg_catalog.regexp_split_to_array(pg_catalog.regexp_replace(_release, '[^0-9.].*', ''), '\.')::integer[]
  then
    raise exception using message = pg_catalog.format(
      'The functions in this database are those of Holdfast %s, and this is Holdfast %s. '
      'Upgrade Holdfast here, or go back to the older functions on purpose with --force.', _installed.release, _release);
  end if;

  perform pg_catalog.set_config('holdfast.installed_version', _installed.version::text, true);
  perform pg_catalog.set_config('holdfast.action', case
    when _installed.version < _version then 'upgrade'
    when _force or _installed.digest <> pg_catalog.current_setting('holdfast.digest') then 'replay'
    else 'nothing' end, true);
end
$$;

select current_setting('holdfast.action') = 'install' as holdfast_install,
  current_setting('holdfast.action') = 'nothing' as holdfast_nothing,
  current_setting('holdfast.installed_version') as holdfast_version \gset
\if :holdfast_nothing
\set holdfast_done 'nothing to do'
\else
\set holdfast_done 'done'

-- limits
set local check_function_bodies = off;
set local lock_timeout = '2s';


-- defaults.sql
comment on schema queues is 'Holdfast: the engine. Every change of state is a function here.';
comment on schema internal is 'Holdfast: the function runner.';

-- Only the global form works: a default that PUBLIC has everywhere cannot be taken away schema by schema.
alter default privileges for role holdfast_owner revoke execute on functions from public;
alter default privileges for role holdfast_owner revoke usage on types from public;

\if :holdfast_install

-- schema/01_routing.sql
-- A lane is one queue, type and priority in use. Claims look at one index range per lane, so that neither
-- other queues, nor other types, nor tasks scheduled at another priority cost them anything.
-- There is no unique key on purpose: two transactions that use a new type at the same time each make a lane
-- instead of waiting for one another (or deadlocking); both lanes are read from then on.
create table queues.lane (
  lane_id integer generated always as identity constraint lane_pkey primary key,
  queue text collate "C" not null,
  type text collate "C" not null,
  priority integer not null
);
create index lane_of_task on queues.lane (queue, type, priority, lane_id);
comment on table queues.lane is 'One row per queue, type and priority in use: what a claim looks through.';

create table queues.paused_queue (
  queue text collate "C" constraint paused_queue_pkey primary key,
  paused_at timestamptz not null,
  paused_by text not null,
  reason text
);
comment on table queues.paused_queue is 'Queues from which nothing is claimed until they are resumed.';

create table queues.executor (
  executor text collate "C" constraint executor_pkey primary key,
  needs_process boolean not null,
  description text not null
);
comment on table queues.executor is
  'What can run a task. Those that act with the rights of the database need holdfast_process to enqueue.';
insert into queues.executor (executor, needs_process, description) values
  ('python', false, 'a registered Python handler, in the worker'),
  ('process', false, 'a registered Python handler, in a process of its own'),
  ('command', false, 'an external program from the worker''s configuration'),
  ('db_function', true, 'a database function, called through internal.run_function'),
  ('email', true, 'an e-mail, between its before, success and error handlers'),
  ('sms', true, 'a text message, between its before, success and error handlers');

create table queues.setting (
  name text collate "C" constraint setting_pkey primary key,
  value bigint not null,
  description text not null,
  -- So that small batches and payloads need no look into this table.
  constraint limits_not_too_low check (value >= case name
    when 'max_payload_bytes' then 4096 when 'max_result_bytes' then 4096 when 'max_batch' then 1000 else 1 end)
);
comment on table queues.setting is 'Limits that an installation may change.';
insert into queues.setting (name, value, description) values
  ('max_payload_bytes', 262144, 'largest payload, as text, that enqueue takes'),
  ('max_result_bytes', 1048576, 'largest result, as text, that finish keeps'),
  ('max_batch', 50000, 'most elements in one call of enqueue_many, heartbeat, finish or release'),
  ('worker_timeout_seconds', 60, 'how long a worker may be silent before it counts as dead');


-- schema/02_task.sql
-- What was asked. Inserted once, never updated: where a task stands is which other table it has a row in.
create table queues.task (
  task_id uuid constraint task_pkey primary key,
  created_at timestamptz not null,
  run_at timestamptz not null,
  priority integer not null,
  max_attempts integer not null constraint at_least_one_attempt check (max_attempts >= 1),
  type text collate "C" not null,
  queue text collate "C" not null,
  executor text collate "C" not null,
  enqueued_by text collate "C" not null,
  idempotency_key text collate "C",
  timeout interval,
  lease interval,
  spec_hash bytea not null,
  payload jsonb not null,
  metadata jsonb
);
create index task_of_type on queues.task (type, task_id);
comment on table queues.task is 'What was asked: written once, removed only by retention.';
comment on column queues.task.spec_hash is 'SHA-256 of {type, executor, payload} in the normal form of jsonb.';
comment on column queues.task.enqueued_by is 'The login (session_user) that asked.';

-- Apart from the task, so that deleting a task frees its key and nothing on the retry path can collide with it.
create table queues.task_key (
  type text collate "C" not null,
  idempotency_key text collate "C" not null,
  task_id uuid not null,
  constraint one_task_per_type_and_key primary key (type, idempotency_key)
);
comment on table queues.task_key is 'Which task an idempotency key stands for, per type.';

-- One element of a batch on its way in.
create type queues.new_task as (
  n integer,
  task_id uuid,
  type text,
  queue text,
  executor text,
  priority integer,
  run_at timestamptz,
  max_attempts integer,
  timeout interval,
  lease interval,
  idempotency_key text,
  spec_hash bytea,
  payload jsonb,
  metadata jsonb
);


-- schema/03_state.sql
-- Where a task stands: exactly one of ready, lease, outcome, or a deletion that parks it.

create table queues.ready (
  task_id uuid constraint ready_pkey primary key,
  run_at timestamptz not null,
  lane_id integer not null,
  attempt integer not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index ready_to_claim on queues.ready (lane_id, run_at, task_id);
comment on table queues.ready is
  'May be claimed from run_at on. Rows are inserted and deleted, never updated.';
comment on column queues.ready.attempt is 'Attempts used so far.';

create table queues.lease (
  task_id uuid constraint lease_pkey primary key,
  token bigint not null,
  claimed_at timestamptz not null,
  lease_until timestamptz not null,
  run_at timestamptz not null,
  started_at timestamptz,
  lane_id integer not null,
  attempt integer not null,
  lease_ms integer not null,
  deleted boolean not null,
  worker_id text collate "C" not null,
  progress jsonb
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index lease_to_sweep on queues.lease (lease_until);
comment on table queues.lease is
  'Worker W holds the task, with this token, until lease_until: the only row of the hot path that is updated.';
comment on column queues.lease.run_at is 'When it became due: kept so that a released task gets its place back.';
comment on column queues.lease.deleted is
  'Soft-deleted while it ran. Here and not only in deletion, because a finish that waited for this row sees its newest version.';

create table queues.outcome (
  task_id uuid constraint one_outcome_per_task primary key,
  token bigint,
  claimed_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz not null,
  attempt integer not null,
  status text collate "C" not null
    constraint known_outcome check (status in ('succeeded', 'failed', 'dead_letter', 'cancelled')),
  worker_id text collate "C",
  reason text,
  result jsonb
);
create index outcome_to_look_into on queues.outcome (status, task_id) where status <> 'succeeded';
comment on table queues.outcome is 'How it ended, with the result. At most one per task.';

create table queues.deletion (
  task_id uuid constraint deletion_pkey primary key,
  deleted_at timestamptz not null,
  deleted_by text not null,
  reason text,
  parked_run_at timestamptz,
  parked_lane_id integer,
  parked_attempt integer,
  constraint parked_whole_or_not_at_all check (
    (parked_run_at is null) = (parked_lane_id is null) and (parked_run_at is null) = (parked_attempt is null))
);
comment on table queues.deletion is
  'Soft-deleted, by whom and why; the parked columns hold a waiting task''s place until it is restored.';

-- One per claim call. It only ever grows, so it can serve as a fencing token outside this database too.
create sequence queues.token as bigint;

-- Unlogged, so that a crash empties it, and a standby that is promoted finds it empty: then the last claims may be
-- forgotten, because they did not wait for the disk, and the sequence would issue their tokens again.
create unlogged table queues.unbroken (
  only_one boolean constraint unbroken_pkey primary key default true constraint unbroken_is_one_row check (only_one)
);
insert into queues.unbroken default values;
comment on table queues.unbroken is 'Has its row unless the server has crashed since the last claim.';


-- schema/04_history.sql
create table queues.error (
  error_id bigint generated always as identity constraint error_pkey primary key,
  task_id uuid not null,
  token bigint,
  claimed_at timestamptz,
  started_at timestamptz,
  occurred_at timestamptz not null,
  retry_at timestamptz,
  attempt integer not null,
  recovered boolean not null,
  kind text not null,
  message text not null,
  worker_id text,
  detail jsonb
);
create index errors_of_task on queues.error (task_id, error_id);
comment on table queues.error is 'Every attempt that went wrong. Append-only.';
comment on column queues.error.recovered is 'Written when a lease ended without a report, not by the worker that held it.';
comment on column queues.error.retry_at is 'When it is tried again; null when this was the end.';

create table queues.act (
  act_id bigint generated always as identity constraint act_pkey primary key,
  task_id uuid,
  queue text,
  act text not null constraint known_act check (act in (
    'cancelled', 'retried', 'deleted', 'restored', 'rescheduled', 'paused', 'resumed', 'released', 'snoozed')),
  occurred_at timestamptz not null,
  token bigint,
  attempt integer,
  worker_id text,
  actor text not null,
  reason text,
  data jsonb
);
create index acts_on_task on queues.act (task_id, act_id) where task_id is not null;
create index acts_on_queue on queues.act (queue, act_id) where queue is not null;
comment on table queues.act is
  'What was done to a task or a queue outside the ordinary course, with actor and reason. Append-only.';


-- schema/05_fleet.sql
create table queues.worker (
  worker_id text collate "C" constraint worker_pkey primary key,
  hostname text not null,
  pid integer,
  version text,
  queues text[] not null,
  type_prefixes text[] not null,
  concurrency integer not null,
  in_flight integer not null,
  idle boolean not null,
  started_at timestamptz not null,
  last_heartbeat timestamptz not null
) with (fillfactor = 50);
create index worker_to_wake on queues.worker (worker_id) where idle;
comment on table queues.worker is 'The processes that run tasks. One row per process start, one update per beat.';

-- One row at most, whatever happens: that is what makes two leaders impossible.
create table queues.leadership (
  only_one boolean constraint one_leader primary key default true constraint only_true check (only_one),
  worker_id text not null,
  term bigint not null,
  leader_since timestamptz not null,
  leader_until timestamptz not null
) with (fillfactor = 50);
comment on table queues.leadership is 'Who sweeps the floor, and until when.';

create table queues.installation (
  version integer constraint installation_pkey primary key,
  installed_at timestamptz not null,
  release text not null,
  digest text not null
);
comment on table queues.installation is 'The versions of the schema that this database has had.';
comment on column queues.installation.digest is 'SHA-256 of the SQL that was applied last: another one is to be replayed.';


-- schema/06_waiting.sql
-- Whose end somebody waits for. Unlogged: after a crash those who wait ask again, as they do anyway from time to time.
create unlogged table queues.waiter (
  task_id uuid constraint waiter_pkey primary key,
  until timestamptz not null
);
comment on table queues.waiter is 'Tasks whose end somebody waits for: finish tells them, and nobody else.';

\else
select :holdfast_version < 2 as holdfast_older \gset
\if :holdfast_older

-- migrations/0002_waiters.sql
-- Whose end somebody waits for. Unlogged: after a crash those who wait ask again, as they do anyway from time to time.
create unlogged table queues.waiter (
  task_id uuid constraint waiter_pkey primary key,
  until timestamptz not null
);
comment on table queues.waiter is 'Tasks whose end somebody waits for: finish tells them, and nobody else.';

update queues.setting
set description = 'most elements in one call of enqueue_many, heartbeat, finish or release' where name = 'max_batch';

\endif
select :holdfast_version < 3 as holdfast_older \gset
\if :holdfast_older

-- migrations/0003_unbroken.sql
-- Unlogged, so that a crash empties it, and a standby that is promoted finds it empty: then the last claims may be
-- forgotten, because they did not wait for the disk, and the sequence would issue their tokens again.
create unlogged table queues.unbroken (
  only_one boolean constraint unbroken_pkey primary key default true constraint unbroken_is_one_row check (only_one)
);
insert into queues.unbroken default values;
comment on table queues.unbroken is 'Has its row unless the server has crashed since the last claim.';

\endif
\endif

-- functions to come
set local holdfast.functions = '[
{"name": "queues.check_claim", "header": "(\n  worker_id text, max_tasks integer, queues text[], type_prefixes text[], lease interval, after jsonb)\nreturns boolean"},
{"name": "queues.claim", "header": "(\n  worker_id text,\n  max_tasks integer default 1,\n  queues text[] default null,\n  type_prefixes text[] default null,\n  lease interval default null,\n  after jsonb default null)\nreturns table (\n  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,\n  lease_until timestamptz, timeout interval, metadata jsonb, run_at timestamptz, lane_id integer)"},
{"name": "queues.dequeue_next_available_task", "header": "(\n  worker_id text default null,\n  queues text[] default null,\n  type_prefixes text[] default null)\nreturns table (\n  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,\n  lease_until timestamptz, timeout interval, metadata jsonb)"},
{"name": "queues.lock_ready", "header": "(\n  lanes integer[], from_run_at timestamptz[], from_task_id uuid[], due timestamptz, max_tasks integer)\nreturns tid[]"},
{"name": "queues.next_due", "header": "(queues text[] default null, type_prefixes text[] default null)\nreturns interval"},
{"name": "queues.skip_lost_tokens", "header": "()\nreturns void"},
{"name": "queues.check_batch", "header": "(field text, batch jsonb)\nreturns boolean"},
{"name": "queues.check_executor", "header": "(executor text, for_process boolean, place text)\nreturns void"},
{"name": "queues.check_name", "header": "(field text, name text, place text default '''')\nreturns void"},
{"name": "queues.check_task", "header": "(\n  element jsonb, type text, queue text, executor text, priority text, run_at text, max_attempts text,\n  timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb,\n  for_process boolean, place text, now timestamptz)\nreturns boolean"},
{"name": "queues.enqueue", "header": "(\n  type text,\n  payload jsonb default ''{}'',\n  queue text default null,\n  priority integer default 0,\n  run_at timestamptz default null,\n  idempotency_key text default null,\n  max_attempts integer default 3,\n  timeout interval default null,\n  lease interval default null,\n  executor text default null,\n  metadata jsonb default null)\nreturns uuid"},
{"name": "queues.enqueue_for_client", "header": "(tasks jsonb)\nreturns table (task_id uuid, created boolean)"},
{"name": "queues.enqueue_for_process", "header": "(tasks jsonb)\nreturns table (task_id uuid, created boolean)"},
{"name": "queues.enqueue_many", "header": "(tasks jsonb)\nreturns table (task_id uuid, created boolean)"},
{"name": "queues.enqueue_one_for_client", "header": "(\n  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,\n  timeout interval, lease interval, executor text, metadata jsonb)\nreturns uuid"},
{"name": "queues.enqueue_one_for_process", "header": "(\n  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,\n  timeout interval, lease interval, executor text, metadata jsonb)\nreturns uuid"},
{"name": "queues.executor_for", "header": "(executor text, payload jsonb)\nreturns text"},
{"name": "queues.hold_keys", "header": "(batch queues.new_task[])\nreturns uuid[]"},
{"name": "queues.insert_task", "header": "(\n  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,\n  timeout interval, lease interval, executor text, metadata jsonb, for_process boolean)\nreturns uuid"},
{"name": "queues.insert_tasks", "header": "(tasks jsonb, for_process boolean)\nreturns table (task_id uuid, created boolean)"},
{"name": "queues.looks_right", "header": "(\n  type text, queue text, executor text, priority text, max_attempts text, idempotency_key text, others jsonb,\n  payload_text text, max_payload_bytes bigint)\nreturns boolean"},
{"name": "queues.parse_duration", "header": "(\n  field text, value text, least_allowed interval, most_allowed interval, place text default '''')\nreturns interval"},
{"name": "queues.parse_time", "header": "(field text, value text, now timestamptz, place text default '''')\nreturns timestamptz"},
{"name": "queues.problem_with_document", "header": "(document jsonb, max_bytes bigint)\nreturns text"},
{"name": "queues.spec_hash", "header": "(type text, executor text, payload jsonb)\nreturns bytea"},
{"name": "queues.spec_hash_of_text", "header": "(type text, executor text, payload text)\nreturns bytea"},
{"name": "queues.text_of_plain", "header": "(document jsonb)\nreturns text"},
{"name": "queues.wake", "header": "(batch queues.new_task[], now timestamptz)\nreturns void"},
{"name": "internal.run_function", "header": "(function_name text, payload jsonb)\nreturns jsonb"},
{"name": "queues.backoff", "header": "(attempt integer)\nreturns interval"},
{"name": "queues.error_message", "header": "(error jsonb, otherwise text)\nreturns text"},
{"name": "queues.finish", "header": "(worker_id text, results jsonb)\nreturns table (task_id uuid, verdict text)"},
{"name": "queues.heartbeat", "header": "(worker_id text, held jsonb)\nreturns table (task_id uuid, verdict text)"},
{"name": "queues.park", "header": "(task_ids uuid[])\nreturns void"},
{"name": "queues.release", "header": "(worker_id text, held jsonb)\nreturns table (task_id uuid, verdict text)"},
{"name": "queues.settle_mixed", "header": "(\n  worker_id text, results jsonb, now timestamptz, out accepted uuid[], out places integer[])"},
{"name": "queues.settle_succeeded", "header": "(\n  worker_id text, results jsonb, now timestamptz, out accepted uuid[], out places integer[])"},
{"name": "queues.storable", "header": "(document jsonb, max_bytes bigint default null)\nreturns jsonb"},
{"name": "queues.sweep", "header": "(max_tasks integer default 1000)\nreturns table (recovered integer, dead integer)"},
{"name": "queues.verdicts", "header": "(results jsonb, accepted integer[])\nreturns table (task_id uuid, verdict text)"},
{"name": "queues.list_tasks", "header": "(\n  status text default null,\n  queue text default null,\n  type_prefix text default null,\n  since timestamptz default null,\n  before uuid default null,\n  max_tasks integer default 50)\nreturns setof queues.task_status"},
{"name": "queues.pause", "header": "(queue text, reason text default null)\nreturns boolean"},
{"name": "queues.resume", "header": "(queue text, reason text default null)\nreturns boolean"},
{"name": "queues.cancel", "header": "(task_id uuid, reason text default null)\nreturns text"},
{"name": "queues.count_ahead", "header": "(task_id uuid, now timestamptz)\nreturns integer"},
{"name": "queues.delete_task", "header": "(task_id uuid, reason text default null)\nreturns text"},
{"name": "queues.explain", "header": "(task_id uuid)\nreturns text"},
{"name": "queues.explain_end", "header": "(\n  status text, finished_at timestamptz, attempt integer, max_attempts integer, reason text, last_error text)\nreturns text"},
{"name": "queues.explain_wait", "header": "(\n  task_id uuid, queue text, type text, run_at timestamptz, attempt integer, max_attempts integer, last_error text, now timestamptz)\nreturns text"},
{"name": "queues.give_up_after", "header": "(tries integer, task_id uuid)\nreturns void"},
{"name": "queues.lane_for", "header": "(queue text, type text, priority integer)\nreturns integer"},
{"name": "queues.matches", "header": "(task queues.task, queue text, type_prefix text, since timestamptz, all_tasks boolean)\nreturns boolean"},
{"name": "queues.may_read_all", "header": "()\nreturns boolean"},
{"name": "queues.own_task", "header": "(task_id uuid)\nreturns void"},
{"name": "queues.reschedule", "header": "(task_id uuid, run_at timestamptz, reason text default null)\nreturns text"},
{"name": "queues.restore_task", "header": "(task_id uuid, reason text default null)\nreturns text"},
{"name": "queues.retry", "header": "(task_id uuid, reason text default null)\nreturns text"},
{"name": "queues.status_now", "header": "(task_id uuid)\nreturns text"},
{"name": "queues.status_of", "header": "(\n  outcome_status text, claimed_at timestamptz, started_at timestamptz, attempt integer, run_at timestamptz, now timestamptz)\nreturns text"},
{"name": "queues.wake_for", "header": "(task_id uuid)\nreturns void"},
{"name": "queues.allow_to_lose", "header": "()\nreturns boolean"},
{"name": "queues.clock", "header": "()\nreturns timestamptz"},
{"name": "queues.new_task_id", "header": "()\n    returns uuid"},
{"name": "queues.nth_task_id", "header": "(first_id uuid, n bigint)\nreturns uuid"},
{"name": "queues.tell_waiters", "header": "(task_ids uuid[])\nreturns void"},
{"name": "queues.watch", "header": "(task_id uuid, ttl interval default ''1 minute'')\nreturns text"},
{"name": "queues.lead", "header": "(worker_id text, term interval default ''15 seconds'')\nreturns boolean"},
{"name": "queues.mark_idle", "header": "(worker_id text, idle boolean)\nreturns boolean"},
{"name": "queues.register_worker", "header": "(\n  worker_id text,\n  hostname text default ''unknown'',\n  pid integer default null,\n  version text default null,\n  queues text[] default null,\n  type_prefixes text[] default null,\n  concurrency integer default 1)\nreturns void"},
{"name": "queues.retire_worker", "header": "(worker_id text)\nreturns boolean"}
]';


-- install/find_stale_functions.sql
-- Finds what "create or replace" cannot replace: functions that have left the release, and those whose parameters or
-- result have changed. To see that, each header of the release is declared once under a name of no importance.
do $$
declare
  _wanted constant jsonb := pg_catalog.current_setting('holdfast.functions');
  _function record;
  _stale oid[];
begin
  _stale := array(
    select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname in ('queues', 'internal')
      and not exists (
        select from pg_catalog.jsonb_array_elements(_wanted) w where w ->> 'name' = n.nspname || '.' || p.proname));

  for _function in
    select w ->> 'header' as header, live.oid, live.defaults
    from pg_catalog.jsonb_array_elements(_wanted) w
    join (
      select p.oid, n.nspname || '.' || p.proname as name, p.pronargdefaults as defaults
      from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      where n.nspname in ('queues', 'internal')
    ) live on live.name = w ->> 'name'
  loop
    begin
      execute pg_catalog.format('create function queues.holdfast_probe%s language plpgsql as ''''', _function.header);
      -- Looked up by name each time: a constant would stay the first one's oid for the whole loop.
      if not exists (
        select from pg_catalog.pg_proc o, pg_catalog.pg_proc n
        where o.oid = _function.oid and n.oid = pg_catalog.to_regproc('queues.holdfast_probe')
          and o.prokind = n.prokind and o.proargtypes = n.proargtypes and o.provariadic = n.provariadic
          and o.prorettype = n.prorettype and o.proretset = n.proretset and o.pronargdefaults <= n.pronargdefaults
          and o.proallargtypes is not distinct from n.proallargtypes
          and o.proargmodes is not distinct from n.proargmodes
          and o.proargnames is not distinct from n.proargnames)
      then
        _stale := _stale || _function.oid;
      end if;
      drop function queues.holdfast_probe;
    exception when undefined_object or undefined_table then
      -- Its types are still to come, so this cannot be the same function.
      _stale := _stale || _function.oid;
    end;
  end loop;

  perform pg_catalog.set_config('holdfast.stale_functions', _stale::text, true);
  perform pg_catalog.set_config('holdfast.drop_views', exists (
    select from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
      and d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.refobjid = any (_stale))::text, true);
end
$$;


-- install/drop_stale_views.sql
-- Drops all views, and the functions that return their rows, if one of them is in the way: all of them come again.
-- Never with cascade, so that a view which somebody has built on ours stops the migration instead of vanishing.
do $$
declare
  _dropped text;
begin
  if not pg_catalog.current_setting('holdfast.drop_views')::boolean then
    return;
  end if;

  for _dropped in
    select distinct d.objid::pg_catalog.regprocedure
    from pg_catalog.pg_class c
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and d.refobjid = c.reltype
    join pg_catalog.pg_proc p on d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and p.oid = d.objid
    where c.relkind = 'v'
      and c.relnamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace)
      and p.pronamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace)
  loop
    execute 'drop routine ' || _dropped;
  end loop;

  select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ') into _dropped
  from pg_catalog.pg_class c
  where c.relkind = 'v' and c.relnamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace);
  if _dropped is not null then
    execute 'drop view ' || _dropped;
  end if;
end
$$;


-- install/drop_stale_functions.sql
do $$
declare
  _dropped text;
begin
  for _dropped in
    select p.oid::pg_catalog.regprocedure from pg_catalog.pg_proc p
    where p.oid = any (pg_catalog.current_setting('holdfast.stale_functions')::oid[])
  loop
    execute 'drop routine ' || _dropped;
  end loop;
end
$$;


-- functions/claim/check_claim.sql
-- Refuses a claim that cannot be meant: no worker, no tasks, nulls among the subscriptions, an absurd lease.
-- Answers true, so that a declaration can call it without a query.
create or replace function queues.check_claim(
  worker_id text, max_tasks integer, queues text[], type_prefixes text[], lease interval, after jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  _problem := case
    when worker_id is null or worker_id = '' or octet_length(worker_id) > 200
      then 'worker_id must be between 1 and 200 bytes long'
    when max_tasks is null or max_tasks not between 1 and 10000 then 'max_tasks must be between 1 and 10000'
    when array_position(queues, null) is not null then 'queues must not hold nulls'
    when array_position(type_prefixes, null) is not null then 'type_prefixes must not hold nulls'
    when lease < interval '1 second' or lease > interval '1 day' then 'lease must be between 1 second and 1 day'
    when jsonb_typeof(after) <> 'object' then 'after must be an object'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  return true;
end
$$;

comment on function queues.check_claim(text, integer, text[], text[], interval, jsonb) is
  'Refuses a claim that cannot be meant: no worker, no tasks, nulls among the subscriptions, an absurd lease.';


-- functions/claim/claim.sql
-- Leases the first due tasks, in the strict order priority desc, run_at, task_id, over all that the worker
-- subscribes to: queues, type prefixes, or both; with neither, the queue "default". Counts the attempt.
-- For holdfast_worker. Locks: ready rows, never waiting for one; after a crash of the server first the row of queues.unbroken.
--
-- "after" is the claim cursor: {lane_id: {"run_at", "task_id"}} of the last row that the same worker got from each lane. It lets a claim
-- start past rows that are gone but that an old snapshot keeps in the index. A task that was put in
-- behind the cursor is not seen, so a worker drops it after a second; a claim that comes back short looks again without it.
create or replace function queues.claim(
  worker_id text,
  max_tasks integer default 1,
  queues text[] default null,
  type_prefixes text[] default null,
  lease interval default null,
  after jsonb default null)
returns table (
  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,
  lease_until timestamptz, timeout interval, metadata jsonb, run_at timestamptz, lane_id integer)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_claim(worker_id, max_tasks, queues, type_prefixes, lease, after);
  -- A claim lost in a crash loses nothing: the tasks are still ready.
  _hasty constant boolean := queues.allow_to_lose();
  _now constant timestamptz := queues.clock();
  _wanted integer := max_tasks;
  _rank record;
  _picked tid[] := '{}';
  _token bigint;
begin
  if not exists (select from queues.unbroken) then
    perform queues.skip_lost_tokens();
  end if;
  for _rank in
    select l.priority, array_agg(l.lane_id) as lanes,
      array_agg(coalesce((claim.after -> l.lane_id::text ->> 'run_at')::timestamptz, '-infinity')) as run_ats,
      array_agg(coalesce((claim.after -> l.lane_id::text ->> 'task_id')::uuid, '00000000-0000-0000-0000-000000000000')) as task_ids
    from queues.lane l
    where (l.queue = any (coalesce(claim.queues, case when claim.type_prefixes is null then array['default'] end))
        or exists (select from unnest(claim.type_prefixes) prefix where starts_with(l.type, prefix)))
      and not exists (select from queues.paused_queue p where p.queue = l.queue)
    group by l.priority order by l.priority desc
  loop
    _picked := _picked || coalesce(
      queues.lock_ready(_rank.lanes, _rank.run_ats, _rank.task_ids, _now, _wanted), '{}');
    _wanted := max_tasks - cardinality(_picked);
    exit when _wanted = 0;
  end loop;

  if _wanted > 0 and after is not null then
    return query select c.* from queues.claim(worker_id, max_tasks, queues, type_prefixes, lease) c;
    return;
  elsif _picked = '{}' then
    return;
  end if;

  _token := nextval('queues.token');
  return query
  with gone as (
    delete from queues.ready r where r.ctid = any (_picked)
    returning r.task_id, r.run_at, r.lane_id, r.attempt + 1 as attempt),
  work as materialized (
    select g.task_id, g.run_at, g.lane_id, g.attempt, t.type, t.executor, t.payload, t.max_attempts, t.timeout,
      t.metadata, t.priority, coalesce(t.lease, claim.lease, interval '30 seconds') as lease
    from gone g
    cross join lateral (select * from queues.task t where t.task_id = g.task_id offset 0) t),
  held as (
    insert into queues.lease (task_id, token, claimed_at, lease_until, run_at, lane_id, attempt, lease_ms, deleted, worker_id)
    select w.task_id, _token, _now, _now + w.lease, w.run_at, w.lane_id, w.attempt,
      (extract(epoch from w.lease) * 1000)::integer, false, claim.worker_id
    from work w)
  select w.task_id, _token, w.type, w.executor, w.payload, w.attempt, w.max_attempts, _now + w.lease, w.timeout,
    w.metadata, w.run_at, w.lane_id
  from work w order by w.priority desc, w.run_at, w.task_id;
end
$$;

comment on function queues.claim(text, integer, text[], text[], interval, jsonb) is
  'Leases the first due tasks, in the strict order priority desc, run_at, task_id, over all that the worker subscribes to.';


-- functions/claim/dequeue_next_available_task.sql
-- Claims one task, for the simplest worker there is. For holdfast_worker. Locks: one ready row.
create or replace function queues.dequeue_next_available_task(
  worker_id text default null,
  queues text[] default null,
  type_prefixes text[] default null)
returns table (
  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,
  lease_until timestamptz, timeout interval, metadata jsonb)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.task_id, c.token, c.type, c.executor, c.payload, c.attempt, c.max_attempts, c.lease_until, c.timeout, c.metadata
  from queues.claim(coalesce(worker_id, 'backend-' || pg_backend_pid()), 1, queues, type_prefixes) c
$$;

comment on function queues.dequeue_next_available_task(text, text[], text[]) is
  'Claims one task, for the simplest worker there is.';


-- functions/claim/lock_ready.sql
-- Locks the first due rows over lanes of one priority, in the order (run_at, task_id), and answers where they are.
-- The cursors say from where on to look in each lane. Behind claim. Locks: ready rows, never waiting for one.
create or replace function queues.lock_ready(
  lanes integer[], from_run_at timestamptz[], from_task_id uuid[], due timestamptz, max_tasks integer)
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _found tid[];
  _seen integer;
  _window integer := max_tasks;
begin
  if cardinality(lanes) = 1 then
    select array_agg(r.place) into _found
    from (
      select r.ctid as place from queues.ready r
      where r.lane_id = lanes[1] and r.run_at <= due and (r.run_at, r.task_id) > (from_run_at[1], from_task_id[1])
      order by r.run_at, r.task_id limit max_tasks
      for update skip locked) r;
    return _found;
  end if;

  -- Several lanes are merged before anything is locked: to lock as many in each of them would hide from other
  -- workers what this one will not take. Rows that others hold make the window too small: then it grows.
  loop
    with candidate as materialized (
      select c.place
      from unnest(lanes, from_run_at, from_task_id) lane(lane_id, run_at, task_id)
      cross join lateral (
        select r.ctid as place, r.run_at, r.task_id from queues.ready r
        where r.lane_id = lane.lane_id and r.run_at <= due and (r.run_at, r.task_id) > (lane.run_at, lane.task_id)
        order by r.run_at, r.task_id limit _window) c
      order by c.run_at, c.task_id limit _window),
    locked as materialized (
      select r.ctid as place, r.run_at, r.task_id from queues.ready r
      where r.ctid = any (array(select place from candidate))
      order by r.run_at, r.task_id limit max_tasks
      for update skip locked)
    select array_agg(l.place order by l.run_at, l.task_id), (select count(*) from candidate) into _found, _seen
    from locked l;
    exit when _seen < _window or cardinality(_found) >= max_tasks or _window > 100000;
    _window := _window * 4;
  end loop;
  return _found;
end
$$;

comment on function queues.lock_ready(integer[], timestamptz[], uuid[], timestamptz, integer) is
  'Locks the first due rows over lanes of one priority, in the order (run_at, task_id), and answers where they are.';


-- functions/claim/next_due.sql
-- How long until the next task is due that the worker subscribes to: zero or less if one is due now, null if none waits.
-- For holdfast_worker. Locks: none.
create or replace function queues.next_due(queues text[] default null, type_prefixes text[] default null)
returns interval
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  return (
    select min(first.run_at) - queues.clock()
    from queues.lane l
    cross join lateral (
      select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where (l.queue = any (coalesce(next_due.queues, case when next_due.type_prefixes is null then array['default'] end))
        or exists (select from unnest(next_due.type_prefixes) prefix where starts_with(l.type, prefix)))
      and not exists (select from queues.paused_queue p where p.queue = l.queue));
end
$$;

comment on function queues.next_due(text[], text[]) is
  'How long until the next task is due that the worker subscribes to: zero or less if one is due now, null if none waits.';


-- functions/claim/skip_lost_tokens.sql
-- Skips the tokens that a crash may have made the server forget: more than are ever issued between two writes to the
-- disk. This time the commit waits for it, because a second crash must not forget the skip.
-- Behind claim, when queues.unbroken has lost its row. Locks: that row; waits for a claim that is about the same.
create or replace function queues.skip_lost_tokens()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  -- Whoever waited here finds the row, and the tokens skipped on disk.
  insert into queues.unbroken default values on conflict do nothing;
  if found then
    perform set_config('synchronous_commit', 'on', true);
    perform setval('queues.token', nextval('queues.token') + 1000000000);
  end if;
end
$$;

comment on function queues.skip_lost_tokens() is 'Skips the tokens that a crash may have made the server forget.';


-- functions/enqueue/check_batch.sql
-- Refuses what is not a batch: not an array of objects, or too long. Answers true, so that a declaration can call it without a query.
create or replace function queues.check_batch(field text, batch jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _most bigint := 1000;  -- the least that the setting may be
begin
  if batch is null or jsonb_typeof(batch) <> 'array' then
    raise exception using errcode = 'QF400', message = format('%s must be an array of objects', field);
  elsif jsonb_path_exists(batch, 'strict $[*] ? (@.type() != "object")') then
    raise exception using errcode = 'QF400', message = (
      select format('%s[%s] must be an object', field, e.n - 1) from jsonb_array_elements(batch) with ordinality e(element, n)
      where jsonb_typeof(e.element) <> 'object' order by e.n limit 1);
  elsif jsonb_array_length(batch) <= _most then
    return true;
  end if;
  select s.value into _most from queues.setting s where s.name = 'max_batch';
  if jsonb_array_length(batch) > _most then
    raise exception using errcode = 'QF413',
      message = format('%s has %s elements, and at most %s are allowed in one call', field, jsonb_array_length(batch), _most),
      hint = 'Send it in several calls.';
  end if;
  return true;
end
$$;

comment on function queues.check_batch(text, jsonb) is 'Refuses what is not a batch: not an array of objects, or too long.';


-- functions/enqueue/check_executor.sql
-- Refuses an executor that does not exist, or that the caller has no authority for.
create or replace function queues.check_executor(executor text, for_process boolean, place text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _needs_process boolean;
begin
  select e.needs_process into _needs_process from queues.executor e where e.executor = check_executor.executor;
  if not found then
    raise exception using errcode = 'QF400', message = format('%sexecutor %s is unknown', place, to_json(check_executor.executor)),
      hint = (select 'Known are: ' || string_agg(e.executor, ', ' order by e.executor) || '.' from queues.executor e);
  elsif _needs_process and not for_process then
    raise exception using errcode = 'QF403',
      message = format('%sexecutor %s may be used by members of holdfast_process only', place, check_executor.executor),
      hint = 'Call a function of the business process that enqueues it; its owner has holdfast_process.';
  end if;
end
$$;

comment on function queues.check_executor(text, boolean, text) is
  'Refuses an executor that does not exist, or that the caller has no authority for.';


-- functions/enqueue/check_name.sql
-- Refuses a type or queue name that nobody could route or read: empty, overlong, with white space, with an empty segment.
create or replace function queues.check_name(field text, name text, place text default '')
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if name is null or name = '' then
    raise exception using errcode = 'QF400', message = format('%s%s must not be empty', place, field);
  elsif octet_length(name) > 200 then
    raise exception using errcode = 'QF400',
      message = format('%s%s is %s bytes long, and at most 200 are allowed', place, field, octet_length(name));
  -- White space and control characters by number: the classes of regular expressions depend on the locale of the database.
  elsif name ~ '[\u0001-\u0020\u007f-\u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]' or name !~ '^[^.:]+([.:][^.:]+)*$' then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is malformed', place, field, to_json(name)),
      hint = 'Segments are separated by "." or ":", are not empty and hold no white space: billing.invoice_charge.v1';
  end if;
end
$$;

comment on function queues.check_name(text, text, text) is
  'Refuses a type or queue name that is empty, overlong, has white space or an empty segment.';


-- functions/enqueue/check_task.sql
-- Refuses an element of a batch that cannot be enqueued, with a message that names the element and the field; answers true otherwise.
-- Scalars arrive as text, so that a value that does not fit is refused here and not by a cast that cannot say which field it was.
-- Only elements that do not look right at first sight come here.
create or replace function queues.check_task(
  element jsonb, type text, queue text, executor text, priority text, run_at text, max_attempts text,
  timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb,
  for_process boolean, place text, now timestamptz)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _problem text;
  _odd text;
begin
  select k into _odd from jsonb_object_keys(element) k
  where k <> all (array['type', 'payload', 'queue', 'priority', 'run_at', 'idempotency_key', 'max_attempts', 'timeout',
    'lease', 'executor', 'metadata']) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s is unknown', place, to_json(_odd)),
      hint = 'Known are: type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor, metadata.';
  end if;

  select m.key into _odd from jsonb_each(element) m
  where m.value = 'null' and m.key in ('payload', 'priority', 'max_attempts') limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s must not be null', place, _odd);
  end if;
  select k into _odd from unnest(array['type', 'queue', 'executor', 'idempotency_key', 'run_at']) k
  where jsonb_typeof(element -> k) not in ('string', 'null') limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s must be a string', place, _odd);
  end if;

  perform queues.check_name('type', type, place);
  if queue is not null then
    perform queues.check_name('queue', queue, place);
  end if;
  perform queues.check_executor(queues.executor_for(executor, payload), for_process, place);

  _problem := queues.problem_with_document(payload,
    (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  if _problem is not null then
    raise exception using message = format('%spayload %s', place, _problem),
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
  end if;
  if metadata is not null then
    if jsonb_typeof(metadata) <> 'object' then
      raise exception using errcode = 'QF400', message = format('%smetadata must be an object', place);
    end if;
    _problem := queues.problem_with_document(metadata, 16384);
    if _problem is not null then
      raise exception using message = format('%smetadata %s', place, _problem),
        errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
    end if;
  end if;

  if priority !~ '^[+-]?[0-9]{1,9}$' then
    raise exception using errcode = 'QF400',
      message = format('%spriority %s is not a whole number between -999999999 and 999999999', place, to_json(priority));
  end if;
  if max_attempts is not null and (max_attempts !~ '^[0-9]{1,9}$' or max_attempts::integer not between 1 and 1000) then
    raise exception using errcode = 'QF400',
      message = format('%smax_attempts %s is not a whole number between 1 and 1000', place, to_json(max_attempts));
  end if;
  if run_at is not null then
    perform queues.parse_time('run_at', run_at, now, place);
  end if;
  if timeout is not null then
    perform queues.parse_duration('timeout', timeout, interval '1 millisecond', interval '30 days', place);
  end if;
  if lease is not null then
    perform queues.parse_duration('lease', lease, interval '1 second', interval '1 day', place);
  end if;
  if idempotency_key is not null and (idempotency_key = '' or octet_length(idempotency_key) > 500) then
    raise exception using errcode = 'QF400',
      message = format('%sidempotency_key must be between 1 and 500 bytes long', place);
  end if;
  return true;
end
$$;

comment on function queues.check_task(
  jsonb, text, text, text, text, text, text, text, text, text, jsonb, jsonb, boolean, text, timestamptz) is
  'Refuses an element of a batch that cannot be enqueued, with a message that names the element and the field.';


-- functions/enqueue/enqueue.sql
-- Enqueues one task in the caller's transaction and answers its id: a new one, or that of the task that already holds
-- the key with the same spec. For holdfast_client and holdfast_process. Locks: the key.
create or replace function queues.enqueue(
  type text,
  payload jsonb default '{}',
  queue text default null,
  priority integer default 0,
  run_at timestamptz default null,
  idempotency_key text default null,
  max_attempts integer default 3,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if has_function_privilege('queues.enqueue_for_process(jsonb)'::regprocedure, 'execute') then
    return queues.enqueue_one_for_process(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease,
      executor, metadata);
  else
    return queues.enqueue_one_for_client(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease,
      executor, metadata);
  end if;
end
$$;

comment on function queues.enqueue(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb) is
  'Enqueues one task in the caller''s transaction and answers its id.';


-- functions/enqueue/enqueue_for_client.sql
-- Enqueues for holdfast_client: tasks of the executors that act with the rights of the worker only. The right to execute this function is the authority: Postgres checks
-- it against whoever calls, also inside a business function that runs with its owner's rights.
create or replace function queues.enqueue_for_client(tasks jsonb)
returns table (task_id uuid, created boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select i.task_id, i.created from queues.insert_tasks(tasks, for_process => false) i $$;

comment on function queues.enqueue_for_client(jsonb) is
  'Enqueues for holdfast_client: tasks of the executors that act with the rights of the worker only.';


-- functions/enqueue/enqueue_for_process.sql
-- Enqueues for holdfast_process: tasks of every executor, also of those that act with the rights of the database. The right to execute this function is the authority: Postgres checks
-- it against whoever calls, also inside a business function that runs with its owner's rights.
create or replace function queues.enqueue_for_process(tasks jsonb)
returns table (task_id uuid, created boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select i.task_id, i.created from queues.insert_tasks(tasks, for_process => true) i $$;

comment on function queues.enqueue_for_process(jsonb) is
  'Enqueues for holdfast_process: tasks of every executor, also of those that act with the rights of the database.';


-- functions/enqueue/enqueue_many.sql
-- Enqueues a batch in one transaction, all or nothing, and answers in its order. The elements have the keys of enqueue's
-- parameters. For holdfast_client and holdfast_process. Locks: keys in the order of (type, key).
-- Security invoker, so that it can see who really calls and take the way that caller may take.
create or replace function queues.enqueue_many(tasks jsonb)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if has_function_privilege('queues.enqueue_for_process(jsonb)'::regprocedure, 'execute') then
    return query select e.task_id, e.created from queues.enqueue_for_process(tasks) e;
  else
    return query select e.task_id, e.created from queues.enqueue_for_client(tasks) e;
  end if;
end
$$;

comment on function queues.enqueue_many(jsonb) is
  'Enqueues a batch in one transaction, all or nothing, and answers in its order.';


-- functions/enqueue/enqueue_one_for_client.sql
-- Enqueues for holdfast_client: a task of an executor that acts with the rights of the worker only.
-- As with enqueue_for_client, the right to execute it is the authority.
create or replace function queues.enqueue_one_for_client(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,
  timeout interval, lease interval, executor text, metadata jsonb)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.insert_task(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor,
    metadata, for_process => false);
end
$$;

comment on function queues.enqueue_one_for_client(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb) is
  'Enqueues for holdfast_client: a task of an executor that acts with the rights of the worker only.';


-- functions/enqueue/enqueue_one_for_process.sql
-- Enqueues for holdfast_process: a task of any executor, also of those that act with the rights of the database.
-- As with enqueue_for_process, the right to execute it is the authority.
create or replace function queues.enqueue_one_for_process(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,
  timeout interval, lease interval, executor text, metadata jsonb)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.insert_task(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor,
    metadata, for_process => true);
end
$$;

comment on function queues.enqueue_one_for_process(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb) is
  'Enqueues for holdfast_process: a task of any executor, also of those that act with the rights of the database.';


-- functions/enqueue/executor_for.sql
-- The executor of a task: the one given, else the one that the payload names as its task_type, else python.
-- A task_type that is none of ours is the application's business.
create or replace function queues.executor_for(executor text, payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(executor,
    (select e.executor from queues.executor e where jsonb_typeof(payload) = 'object' and e.executor = payload ->> 'task_type'),
    'python')
$$;

comment on function queues.executor_for(text, jsonb) is
  'The executor of a task: the one given, else the one that the payload names as its task_type, else python.';


-- functions/enqueue/hold_keys.sql
-- Which task each element of a batch stands for: itself, or the one that already holds its key.
-- The holder may be a transaction that has not ended: then this waits for it; if it rolls back, the key becomes ours.
-- Locks: keys, in the order of (type, key).
create or replace function queues.hold_keys(batch queues.new_task[])
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _holders uuid[];
  _missing integer;
  _new integer;
  _inserted integer := 0;
  _own integer;
  _conflict record;
begin
  for _try in 1..10 loop
    insert into queues.task_key (type, idempotency_key, task_id)
    select distinct on (b.type, b.idempotency_key) b.type, b.idempotency_key, b.task_id
    from unnest(batch) b
    where b.idempotency_key is not null
    order by b.type, b.idempotency_key, b.n
    on conflict do nothing;
    get diagnostics _new = row_count;
    _inserted := _inserted + _new;

    -- A statement of its own, so that it sees what the others committed while we waited.
    select array_agg(case when b.idempotency_key is null then b.task_id else k.task_id end order by b.n),
           count(*) filter (where b.idempotency_key is not null and k.task_id is null),
           count(*) filter (where k.task_id = b.task_id)
    into _holders, _missing, _own
    from unnest(batch) b
    left join lateral (
      select k.task_id from queues.task_key k
      where k.type = b.type and k.idempotency_key = b.idempotency_key offset 0) k on true;
    exit when _missing = 0;
  end loop;
  -- A snapshot older than the moment a key was freed shows the former holder beside the row just inserted.
  if _own < _inserted or cardinality(_holders) > cardinality(batch) then
    raise exception using errcode = '40001', message = 'an idempotency key changed hands since this transaction began; try again';
  end if;
  if _missing > 0 then
    raise exception using errcode = 'QF503', message = 'an idempotency key changes hands too fast; try again';
  end if;

  select b.n, b.type, b.idempotency_key, _holders[b.n] as holder into _conflict
  from unnest(batch) b
  left join unnest(batch) sibling on sibling.task_id = _holders[b.n]
  left join lateral (select t.spec_hash from queues.task t where t.task_id = _holders[b.n] offset 0) t on true
  where _holders[b.n] <> b.task_id and b.spec_hash is distinct from coalesce(sibling.spec_hash, t.spec_hash)
  order by b.n limit 1;
  if found then
    raise exception using errcode = 'QF409',
      message = format('idempotency_key %s of type %s already stands for task %s, which was asked with another payload or executor',
        to_json(_conflict.idempotency_key), _conflict.type, _conflict.holder),
      hint = 'The same key may not mean two things: use another key, or send the same payload.';
  end if;
  return _holders;
end
$$;

comment on function queues.hold_keys(queues.new_task[]) is
  'Which task each element of a batch stands for: itself, or the one that already holds its key.';


-- functions/enqueue/insert_task.sql
-- Inserts one task and answers its id, as insert_tasks does for a batch, with statements small enough for a path that is taken once per
-- request of an application. Behind enqueue_one_for_client and enqueue_one_for_process; nobody else may call it. Locks: the key.
create or replace function queues.insert_task(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,
  timeout interval, lease interval, executor text, metadata jsonb, for_process boolean)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  -- Acknowledged means on disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _payload_text constant text := queues.text_of_plain(payload);
  _task_id constant uuid := queues.new_task_id();
  _hash bytea;
  _holder uuid;
  _lane_id integer;
  _idle boolean;
begin
  if payload is null or payload = 'null' or priority is null or max_attempts is null then
    raise exception using errcode = 'QF400', message = format('%s must not be null',
      case when priority is null then 'priority' when max_attempts is null then 'max_attempts' else 'payload' end);
  end if;
  executor := case when executor is null and payload ? 'task_type' then queues.executor_for(null, payload)
    else coalesce(executor, 'python') end;
  if timeout is not null or lease is not null or run_at is not null or metadata is not null
    or queues.looks_right(type, queue, executor, priority::text, max_attempts::text, idempotency_key, '{}', _payload_text,
      max_payload_bytes => 4096) is not true
  then
    perform queues.check_task('{}', type, queue, executor, priority::text, to_json(run_at) #>> '{}', max_attempts::text,
      extract(epoch from timeout)::text, extract(epoch from lease)::text, idempotency_key, payload, metadata, for_process, '', _now);
  end if;
  queue := coalesce(queue, split_part(split_part(type, '.', 1), ':', 1));
  run_at := coalesce(run_at, _now);
  _hash := queues.spec_hash_of_text(type, executor, coalesce(_payload_text, payload::text));

  if idempotency_key is not null then
    _holder := (queues.hold_keys(array[row(1, _task_id, type, queue, executor, priority, run_at, max_attempts, timeout, lease,
      idempotency_key, _hash, null, null)::queues.new_task]))[1];
    if _holder <> _task_id then
      return _holder;
    end if;
  end if;

  select l.lane_id, exists (select from queues.worker w where w.idle) into _lane_id, _idle
  from queues.lane l where l.queue = insert_task.queue and l.type = insert_task.type and l.priority = insert_task.priority
  order by l.queue, l.type, l.priority, l.lane_id limit 1;
  if _lane_id is null then
    _lane_id := queues.lane_for(queue, type, priority);
    _idle := true;
  end if;
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
    idempotency_key, timeout, lease, spec_hash, payload, metadata)
  values (_task_id, _now, run_at, priority, max_attempts, type, queue, executor, session_user,
    idempotency_key, timeout, lease, _hash, payload, metadata);
  insert into queues.ready (task_id, run_at, lane_id, attempt) values (_task_id, run_at, _lane_id, 0);
  if _idle and run_at <= _now then
    perform queues.wake_for(_task_id);
  end if;
  return _task_id;
end
$$;

comment on function queues.insert_task(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb, boolean) is
  'Inserts one task and answers its id. Behind the two functions that say who may enqueue what.';


-- functions/enqueue/insert_tasks.sql
-- Inserts a batch, all or nothing, and answers in its order. Behind enqueue_for_client and enqueue_for_process; nobody else may call it.
-- Locks: keys in the order of (type, key); nothing else that exists already.
create or replace function queues.insert_tasks(tasks jsonb, for_process boolean)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('tasks', tasks);
  -- Acknowledged means on disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _size constant integer := jsonb_array_length(tasks);
  _max_bytes bigint;
  _first_id uuid;
  _batch queues.new_task[];
  _keyed boolean;
  _holders uuid[];
begin
  _max_bytes := (select s.value from queues.setting s where s.name = 'max_payload_bytes');
  -- One id is drawn per batch, because random bytes are dear; the elements count up from it.
  _first_id := queues.new_task_id();

  -- The where clause refuses before the select list casts.
  select array_agg(row(g.n, queues.nth_task_id(_first_id, g.n), g.type, coalesce(g.queue, split_part(split_part(g.type, '.', 1), ':', 1)),
      g.executor, coalesce(g.priority::integer, 0), coalesce(g.run_at::timestamptz, _now), coalesce(g.max_attempts::integer, 3),
      g.timeout::interval, g.lease::interval, g.idempotency_key,
      queues.spec_hash_of_text(g.type, g.executor, coalesce(g.payload_text, g.payload::text)), g.payload, g.metadata)::queues.new_task),
    bool_or(g.idempotency_key is not null)
  into _batch, _keyed
  from (
    select g.n, g.element, g.type, g.queue, g.priority, g.run_at, g.max_attempts, g.timeout, g.lease, g.idempotency_key, g.metadata,
      coalesce(g.payload, '{}') as payload, queues.text_of_plain(coalesce(g.payload, '{}')) as payload_text,
      case when g.executor is null and g.payload ? 'task_type' then queues.executor_for(null, g.payload)
        else coalesce(g.executor, 'python') end as executor,
      -- A null that was written out stays among the others, to be refused.
      g.element - array['type', 'queue', 'executor',
        case when g.idempotency_key is null or jsonb_typeof(g.element -> 'idempotency_key') = 'string' then 'idempotency_key' end, case when g.payload is not null then 'payload' end,
        case when g.priority is not null then 'priority' end, case when g.max_attempts is not null then 'max_attempts' end] as others
    from rows from (
        jsonb_to_recordset(tasks) as (type text, queue text, executor text, priority text, run_at text, max_attempts text,
          timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb),
        jsonb_array_elements(tasks)) with ordinality
      g(type, queue, executor, priority, run_at, max_attempts, timeout, lease, idempotency_key, payload, metadata, element, n)
    offset 0) g
  where queues.looks_right(g.type, g.queue, g.executor, g.priority, g.max_attempts, g.idempotency_key, g.others,
      g.payload_text, _max_bytes)
    or queues.check_task(g.element, g.type, g.queue, g.executor, g.priority, g.run_at, g.max_attempts, g.timeout, g.lease,
      g.idempotency_key, g.payload, g.metadata, for_process, case when _size > 1 then format('tasks[%s].', g.n - 1) else '' end, _now);
  if _batch is null then
    return;
  end if;

  insert into queues.lane (queue, type, priority)
  select b.queue, b.type, b.priority from (select distinct b.queue, b.type, b.priority from unnest(_batch) b) b
  where not exists (
    select from queues.lane l where l.queue = b.queue and l.type = b.type and l.priority = b.priority);

  if _keyed then
    _holders := queues.hold_keys(_batch);
  end if;

  return query
  with asked as materialized (
    select b.*, coalesce(_holders[b.n], b.task_id) as holder from unnest(_batch) b),
  lanes as materialized (
    select d.queue, d.type, d.priority, (
      select l.lane_id from queues.lane l
      where l.queue = d.queue and l.type = d.type and l.priority = d.priority
      order by l.queue, l.type, l.priority, l.lane_id limit 1) as lane_id
    from (select distinct b.queue, b.type, b.priority from unnest(_batch) b) d),
  told as (
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
      idempotency_key, timeout, lease, spec_hash, payload, metadata)
    select a.task_id, _now, a.run_at, a.priority, a.max_attempts, a.type, a.queue, a.executor, session_user,
      a.idempotency_key, a.timeout, a.lease, a.spec_hash, a.payload, a.metadata
    from asked a where a.holder = a.task_id),
  waiting as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select a.task_id, a.run_at, l.lane_id, 0
    from asked a join lanes l on l.queue = a.queue and l.type = a.type and l.priority = a.priority
    where a.holder = a.task_id)
  select a.holder, a.holder = a.task_id from asked a order by a.n;

  perform queues.wake(_batch, _now);
end
$$;

comment on function queues.insert_tasks(jsonb, boolean) is
  'Inserts a batch, all or nothing, and answers in its order. Behind the two functions that say who may enqueue what.';


-- functions/enqueue/looks_right.sql
-- Whether an element of a batch is plainly in order: the common shape, judged without a look at any table. What is not gets the full check.
-- No pinned path, so that it is inlined: it runs once per task enqueued.
create or replace function queues.looks_right(
  type text, queue text, executor text, priority text, max_attempts text, idempotency_key text, others jsonb,
  payload_text text, max_payload_bytes bigint)
returns boolean
language sql immutable parallel safe
as $$
  select pg_catalog.octet_length(payload_text) <= max_payload_bytes
    and executor = 'python'
    and pg_catalog.octet_length(type) <= 200 and type ~ '^[A-Za-z0-9_-]+(?:[.:][A-Za-z0-9_-]+)*$'
    and (queue is null or pg_catalog.octet_length(queue) <= 200 and queue ~ '^[A-Za-z0-9_-]+$')
    and (priority is null or priority ~ '^-?[0-9]{1,9}$')
    and (max_attempts is null or max_attempts ~ '^[1-9][0-9]?$')
    and (idempotency_key is null or pg_catalog.octet_length(idempotency_key) between 1 and 500)
    and others = '{}'
$$;

comment on function queues.looks_right(text, text, text, text, text, text, jsonb, text, bigint) is
  'Whether an element of a batch is plainly in order: the common shape, judged without a look at any table.';


-- functions/enqueue/parse_duration.sql
-- A duration within bounds: seconds, or what Postgres writes for an interval.
create or replace function queues.parse_duration(
  field text, value text, least_allowed interval, most_allowed interval, place text default '')
returns interval
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if value !~ '^([0-9]{1,9}(\.[0-9]{1,9})?|([0-9]{1,5} days? ?)?([0-9]{1,6}:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?)?|[0-9]{1,9}(\.[0-9]{1,9})? ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?))$'
     or value = ''
     or value::interval not between least_allowed and most_allowed
  then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is not a duration between %s and %s', place, field, to_json(value), least_allowed, most_allowed),
      hint = 'Write seconds (30), or a number with a unit (5 minutes).';
  end if;
  return value::interval;
end
$$;

comment on function queues.parse_duration(text, text, interval, interval, text) is
  'A duration within bounds: seconds, or what Postgres writes for an interval.';


-- functions/enqueue/parse_time.sql
-- A point in time that can be stored and reckoned with: finite, of our era, not absurdly far away.
create or replace function queues.parse_time(field text, value text, now timestamptz, place text default '')
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _right boolean;
  _time timestamptz;
begin
  _right := value ~ '^(19[7-9][0-9]|2[0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)? ?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9]){0,2})?$';
  -- A cast would refuse the 30th of February itself, but could not say which field it was.
  if _right then
    _right := substr(value, 9, 2)::integer
      <= extract(day from make_date(substr(value, 1, 4)::integer, substr(value, 6, 2)::integer, 1) + interval '1 month' - interval '1 day');
  end if;
  if _right then
    _time := value;
    _right := _time between timestamptz '1970-01-01 00:00Z' and now + interval '100 years';
  end if;
  if not _right then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is not a time between 1970 and a hundred years from now', place, field, to_json(value)),
      hint = 'Write it as 2030-01-31T08:00:00+00:00.';
  end if;
  return _time;
end
$$;

comment on function queues.parse_time(text, text, timestamptz, text) is
  'A point in time that can be stored and reckoned with: finite, of our era, not absurdly far away.';


-- functions/enqueue/problem_with_document.sql
-- What would keep Python or JavaScript from reading a document, or null. Looks before it renders: a few bytes such as 1e131071
-- become megabytes of text.
create or replace function queues.problem_with_document(document jsonb, max_bytes bigint)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _text text := queues.text_of_plain(document);
begin
  if _text is null then
    if pg_column_size(document) > 4 * max_bytes then
      return format('is larger than the %s bytes allowed', max_bytes);
    elsif jsonb_path_exists(document, '$.**{65 to last}') then
      return 'is nested deeper than 64 levels';
    elsif exists (
      select from jsonb_path_query(document, '$.** ? (@.type() == "number")') number
      where scale(number::numeric) > 400
         or abs(number::numeric) > 1.7976931348623157e308
         or (number::numeric <> 0 and abs(number::numeric) < 4.9e-324))
    then
      return 'holds a number that Python or JavaScript cannot read';
    end if;
    _text := document::text;
  end if;
  if octet_length(_text) > max_bytes then
    return format('is %s bytes long, and at most %s bytes are allowed', octet_length(_text), max_bytes);
  end if;
  return null;
end
$$;

comment on function queues.problem_with_document(jsonb, bigint) is
  'What would keep Python or JavaScript from reading a document, or null.';


-- functions/enqueue/spec_hash.sql
-- SHA-256 of the canonical spec: the same from every client, because jsonb brings keys, white space and escapes
-- into one form. Stable, because to_json is, and without a pinned path, so that it is inlined.
create or replace function queues.spec_hash(type text, executor text, payload jsonb)
returns bytea
language sql stable parallel safe
as $$ select queues.spec_hash_of_text(type, executor, payload::text) $$;

comment on function queues.spec_hash(text, text, jsonb) is
  'SHA-256 of the canonical spec {type, executor, payload}: the same from every client.';


-- functions/enqueue/spec_hash_of_text.sql
-- The spec hash, for a payload that has been rendered already. Writes what
-- jsonb_build_object('type', …, 'executor', …, 'payload', …)::text would, in a quarter of the time. Stable, because to_json is, and without a pinned path, so that it is inlined.
create or replace function queues.spec_hash_of_text(type text, executor text, payload text)
returns bytea
language sql stable parallel safe
as $$
  select pg_catalog.sha256(pg_catalog.convert_to(
    '{"type": ' || pg_catalog.to_json(type)::text || ', "payload": ' || payload
    || ', "executor": ' || pg_catalog.to_json(executor)::text || '}', 'UTF8'))
$$;

comment on function queues.spec_hash_of_text(text, text, text) is
  'The spec hash, for a payload that has been rendered already.';


-- functions/enqueue/text_of_plain.sql
-- A document as text if it is plainly harmless to render and to read, else null: small enough to hide nothing,
-- or of moderate size with no number out of range and no deep nesting. Stable, because pg_column_size is, and without
-- a pinned path, so that it is inlined: it runs once per task.
create or replace function queues.text_of_plain(document jsonb)
returns text
language sql stable parallel safe
as $$
  select case
    -- At most 30 levels fit into 250 bytes, and a number that no reader holds takes more than 308 digits to write.
    when pg_catalog.pg_column_size(document) <= 250 then
      case when pg_catalog.octet_length(document::text) <= 308 then document::text end
    when pg_catalog.pg_column_size(document) <= 8192
      and not pg_catalog.jsonb_path_exists(document, '$.**{65 to last}')
      and not pg_catalog.jsonb_path_exists(document, '$.** ? (@.type() == "number" && (@ > 1.7976931348623157e308
        || @ < -1.7976931348623157e308 || (@ > 0 && @ < 4.9e-324) || (@ < 0 && @ > -4.9e-324)))')
    then document::text end
$$;

comment on function queues.text_of_plain(jsonb) is
  'A document as text if it is plainly harmless to render and to read, else null.';


-- functions/enqueue/wake.sql
-- Tells idle workers that a queue has work, and nobody if none is idle: NOTIFY takes a lock that all of the
-- server's commits share. A hint only: who misses it polls.
create or replace function queues.wake(batch queues.new_task[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.worker w where w.idle) then
    perform pg_notify('holdfast', due.queue)
    from (select distinct b.queue, b.type from unnest(batch) b where b.run_at <= wake.now) due
    where exists (
      select from queues.worker w
      where w.idle and (due.queue = any (w.queues)
        or exists (select from unnest(w.type_prefixes) prefix where starts_with(due.type, prefix))));
  end if;
end
$$;

comment on function queues.wake(queues.new_task[], timestamptz) is
  'Tells idle workers that a queue has work, and nobody if none is idle.';


-- functions/internal/run_function.sql
-- Calls a business function by name and answers its envelope. Security invoker: what may be called is what the caller was
-- granted, function by function. Missing and forbidden read the same, so that names cannot be probed.
-- For holdfast_worker.
create or replace function internal.run_function(function_name text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _schema text;
  _name text;
  _count integer;
  _result jsonb;
begin
  if function_name ~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$' then
    _schema := split_part(function_name, '.', 1);
    _name := split_part(function_name, '.', 2);
    select count(*) into _count
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = _schema and p.proname = _name
      and p.prokind = 'f' and not p.proretset and p.pronargs = 1 and p.provariadic = 0
      and p.proargtypes[0] = 'jsonb'::regtype and p.prorettype = 'jsonb'::regtype
      and p.prosecdef
      and exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$')
      and not has_function_privilege('public', p.oid, 'execute')
      and has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')
      -- Another function of the name would make it unclear which one was granted.
      and not exists (select from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname and o.oid <> p.oid);
  end if;
  if _count is distinct from 1 then
    raise exception using errcode = 'QF404',
      message = format('there is no function %s that may be run', coalesce(to_json(left(function_name, 130))::text, 'null')),
      hint = 'It must be schema.name(jsonb) returns jsonb, security definer, with search_path = pg_catalog, pg_temp, not executable by PUBLIC, and granted to the worker''s role.';
  end if;
  execute format('select %I.%I($1)', _schema, _name) into _result using payload;
  return _result;
end
$$;

comment on function internal.run_function(text, jsonb) is
  'Calls a business function by name and answers its envelope, with the rights that the caller was granted.';


-- functions/lease/backoff.sql
-- When to try again, for workers that do not say: 2 s after the first attempt, doubling to at most 5 minutes, plus up to
-- half of it by chance.
create or replace function queues.backoff(attempt integer)
returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select least(300, 2 ^ least(attempt, 20)) * (1 + random() / 2) * interval '1 second' $$;

comment on function queues.backoff(integer) is
  'When to try again, for workers that do not say: doubling from two seconds to five minutes, with jitter.';


-- functions/lease/error_message.sql
-- One line that says what went wrong, from whatever shape a worker reports an error in. No pinned path, so that it is inlined.
create or replace function queues.error_message(error jsonb, otherwise text)
returns text
language sql immutable parallel safe
as $$
  select pg_catalog.left(case pg_catalog.jsonb_typeof(error)
    when 'object' then coalesce(error ->> 'message', error ->> 'kind', error::text)
    when 'string' then error #>> '{}'
    when 'null' then otherwise
    else coalesce(error::text, otherwise) end, 8192)
$$;

comment on function queues.error_message(jsonb, text) is
  'One line that says what went wrong, from whatever shape a worker reports an error in.';


-- functions/lease/finish.sql
-- Settles a batch of results and says of each: accepted, already_done, cancelled or lost. Every result is checked
-- against its token, so a worker that lost its lease changes nothing. Repeating an accepted call changes nothing
-- either and answers already_done.
-- What a result or an error holds never refuses it. For holdfast_worker. Locks: lease rows in the order of task_id.
create or replace function queues.finish(worker_id text, results jsonb)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('results', results);
  -- Acknowledged means on disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _accepted uuid[];
  _places integer[];
begin
  -- Strict, and with what is neither true nor false: a status that is missing or no text is not a success.
  if jsonb_path_exists(results, 'strict $[*] ? (!(@.status == "succeeded") || (@.status == "succeeded") is unknown)') then
    select s.accepted, s.places into _accepted, _places from queues.settle_mixed(worker_id, results, _now) s;
  else
    select s.accepted, s.places into _accepted, _places from queues.settle_succeeded(worker_id, results, _now) s;
  end if;

  perform queues.tell_waiters(_accepted);
  if cardinality(_accepted) = jsonb_array_length(results) then
    return query select accepted.task_id, 'accepted' from unnest(_accepted) accepted(task_id);
  else
    return query select v.task_id, v.verdict from queues.verdicts(results, coalesce(_places, '{}')) v;
  end if;
end
$$;

comment on function queues.finish(text, jsonb) is
  'Settles a batch of results and says of each: accepted, already_done, cancelled or lost.';


-- functions/lease/heartbeat.sql
-- Prolongs the leases a worker holds and says of each what became of it: held, cancelled, deleted or lost.
-- For holdfast_worker. Locks: lease rows in the order of task_id, then the worker's row.
create or replace function queues.heartbeat(worker_id text, held jsonb)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _hasty constant boolean := queues.allow_to_lose();
  _now constant timestamptz := queues.clock();
  _kept integer[];
  _deleted integer[];
begin
  with given as materialized (
    select distinct on (h.task_id, h.token) h.n::integer as n, h.task_id, h.token, h.started_at, h.progress
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint, started_at timestamptz, progress jsonb))
      with ordinality h(task_id, token, started_at, progress, n)
    order by h.task_id, h.token, h.n),
  beaten as (
    update queues.lease l
    set lease_until = _now + l.lease_ms * interval '1 millisecond',
        started_at = coalesce(l.started_at, case when g.started_at is not null then greatest(l.claimed_at, least(g.started_at, _now)) end),
        progress = case when octet_length(queues.text_of_plain(g.progress)) <= 8192 then g.progress else l.progress end
    from given g
    where l.task_id = any (array(select task_id from given))
      and l.task_id = g.task_id and l.token = g.token and l.worker_id = heartbeat.worker_id
    returning g.n, l.deleted)
  select coalesce(array_agg(b.n), '{}'), coalesce(array_agg(b.n) filter (where b.deleted), '{}') into _kept, _deleted from beaten b;

  update queues.worker w
  set last_heartbeat = _now, in_flight = cardinality(_kept)
  where w.worker_id = heartbeat.worker_id;

  -- A statement of its own, so that it sees what was committed while we waited for a lease.
  return query
  select h.task_id, case
      when h.n = any (_deleted) then 'deleted'
      when h.n = any (_kept) then 'held'
      when o.status = 'cancelled' then 'cancelled'
      else 'lost' end
  from (
    select h.task_id, h.token, h.n as place, min(h.n) over (partition by h.task_id, h.token) as n
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)) h
  left join lateral (
    select o.status from queues.outcome o
    where o.task_id = h.task_id and o.token = h.token and not h.n = any (_kept) offset 0) o on true
  order by h.place;
end
$$;

comment on function queues.heartbeat(text, jsonb) is
  'Prolongs the leases a worker holds and says of each what became of it: held, cancelled, deleted or lost.';


-- functions/lease/park.sql
-- Takes tasks that were deleted while they ran off the ready list, until they are restored.
-- A statement after the one that put them there, so that it sees the deletion whenever that was committed.
create or replace function queues.park(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with deleted as materialized (
    -- Those that are restored meanwhile are gone from here, and stay ready.
    select d.task_id from queues.deletion d where d.task_id = any (task_ids) order by d.task_id for update),
  moved as (
    delete from queues.ready r where r.task_id = any (array(select task_id from deleted))
    returning r.task_id, r.run_at, r.lane_id, r.attempt)
  update queues.deletion d
  set parked_run_at = m.run_at, parked_lane_id = m.lane_id, parked_attempt = m.attempt
  from moved m where d.task_id = m.task_id
$$;

comment on function queues.park(uuid[]) is
  'Takes tasks that were deleted while they ran off the ready list, until they are restored.';


-- functions/lease/release.sql
-- Gives back, unfinished, what a worker holds: the attempt does not count and the task gets its place back.
-- Idle workers are woken for it. Answers released, already_done, cancelled or lost. For holdfast_worker. Locks: lease rows in the order of task_id.
create or replace function queues.release(worker_id text, held jsonb)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _now constant timestamptz := queues.clock();
  _released integer[];
  _parked uuid[];
  _one_per_lane uuid[];
begin

  with given as materialized (
    select h.n::integer as n, h.task_id, h.token
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
    order by h.task_id),
  freed as (
    delete from queues.lease l using given g
    where l.task_id = any (array(select task_id from given))
      and l.task_id = g.task_id and l.token = g.token and l.worker_id = release.worker_id
    returning l.*, g.n),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select f.task_id, f.run_at, f.lane_id, f.attempt - 1 from freed f),
  recorded as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, data)
    select f.task_id, 'released', _now, f.token, f.attempt, f.worker_id, session_user,
      jsonb_build_object('claimed_at', f.claimed_at, 'started_at', f.started_at)
    from freed f)
  select coalesce(array_agg(f.n), '{}'), array_agg(f.task_id) filter (where f.deleted),
    array(select distinct on (f.lane_id) f.task_id from freed f where not f.deleted)
  into _released, _parked, _one_per_lane from freed f;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  perform queues.wake_for(r.task_id) from unnest(_one_per_lane) r(task_id);
  return query
  select h.task_id, case
      when h.n = any (_released) then 'released'
      -- Not exists, which the planner may turn into reading a whole table once.
      when (select true from queues.act a
        where a.task_id = h.task_id and a.token = h.token and a.act = 'released' limit 1) then 'already_done'
      when (select true from queues.outcome o
        where o.task_id = h.task_id and o.token = h.token and o.status = 'cancelled' limit 1) then 'cancelled'
      else 'lost' end
  from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
  order by h.n;
end
$$;

comment on function queues.release(text, jsonb) is
  'Gives back, unfinished, what a worker holds: the attempt does not count and the task gets its place back.';


-- functions/lease/settle_mixed.sql
-- Settles results of every kind: to an outcome, back to ready, or parked if the task was deleted while it ran. Answers what was accepted,
-- and at which places. Behind finish. Locks: lease rows in the order of task_id.
create or replace function queues.settle_mixed(
  worker_id text, results jsonb, now timestamptz, out accepted uuid[], out places integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _parked uuid[];
begin
  with given as materialized (
    select r.n::integer as n, r.task_id, r.token, r.status, queues.storable(r.result) as result,
      queues.storable(r.error, 65536) as error, r.run_at, r.started_at
    from rows from (jsonb_to_recordset(results) as (
        task_id uuid, token bigint, status text, result jsonb, error jsonb, run_at timestamptz, started_at timestamptz))
      with ordinality r(task_id, token, status, result, error, run_at, started_at, n)
    order by r.task_id),
  freed as (
    delete from queues.lease l using given g
    where l.task_id = any (array(select task_id from given))
      and l.task_id = g.task_id and l.token = g.token and l.worker_id = settle_mixed.worker_id
      and g.status in ('succeeded', 'failed', 'cancelled', 'retry', 'snooze')
    returning l.task_id, l.token, l.claimed_at, l.lane_id, l.attempt, l.deleted, g.n, g.status, g.result, g.error,
      coalesce(l.started_at, greatest(l.claimed_at, least(coalesce(g.started_at, l.claimed_at), settle_mixed.now))) as started_at,
      case when g.run_at > settle_mixed.now and g.run_at < settle_mixed.now + interval '100 years' then g.run_at
        when g.run_at is null and g.status = 'retry' then settle_mixed.now + queues.backoff(l.attempt)
        else settle_mixed.now end as run_at),
  settled as materialized (
    select f.*, case f.status when 'retry' then case when f.attempt >= t.max_attempts then 'dead_letter' end
      when 'snooze' then null else f.status end as ending
    from freed f
    left join lateral (
      select t.max_attempts from queues.task t where t.task_id = f.task_id and f.status = 'retry' offset 0) t on true),
  ended as (
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason, result)
    select s.task_id, s.token, s.claimed_at, s.started_at, settle_mixed.now, s.attempt, s.ending, settle_mixed.worker_id,
      case when s.ending <> 'succeeded' then queues.error_message(s.error, null) end, s.result
    from settled s where s.ending is not null),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, s.run_at, s.lane_id, s.attempt - (s.status = 'snooze')::integer
    from settled s where s.ending is null),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind,
      message, worker_id, detail)
    select s.task_id, s.token, s.claimed_at, s.started_at, settle_mixed.now, case when s.ending is null then s.run_at end, s.attempt, false,
      left(coalesce(case when jsonb_typeof(s.error) = 'object' then s.error ->> 'kind' end, 'handler_error'), 200),
      queues.error_message(s.error, 'no message'), settle_mixed.worker_id, s.error
    from settled s where s.status in ('retry', 'failed') or s.status = 'cancelled' and s.error is not null),
  snoozed as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, data)
    select s.task_id, 'snoozed', settle_mixed.now, s.token, s.attempt, settle_mixed.worker_id, session_user,
      jsonb_build_object('run_at', s.run_at, 'claimed_at', s.claimed_at, 'started_at', s.started_at)
    from settled s where s.status = 'snooze')
  select array_agg(s.task_id order by s.n), array_agg(s.n order by s.n),
    array_agg(s.task_id) filter (where s.ending is null and s.deleted)
  into accepted, places, _parked from settled s;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
end
$$;

comment on function queues.settle_mixed(text, jsonb, timestamptz) is
  'Settles results of every kind: to an outcome, back to ready, or parked if the task was deleted while it ran.';


-- functions/lease/settle_succeeded.sql
-- Ends tasks that all succeeded: the short way through finish, which most batches take. Answers what was accepted, and at which places.
-- Behind finish. Locks: lease rows in the order of task_id.
create or replace function queues.settle_succeeded(
  worker_id text, results jsonb, now timestamptz, out accepted uuid[], out places integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with given as materialized (
    select r.n::integer as n, r.task_id, r.token, r.result, r.started_at
    from rows from (jsonb_to_recordset(results) as (task_id uuid, token bigint, result jsonb, started_at timestamptz))
      with ordinality r(task_id, token, result, started_at, n)
    order by r.task_id),
  freed as (
    delete from queues.lease l using given g
    where l.task_id = any (array(select task_id from given))
      and l.task_id = g.task_id and l.token = g.token and l.worker_id = settle_succeeded.worker_id
    returning l.task_id, l.token, l.claimed_at, l.attempt, g.n, g.result,
      coalesce(l.started_at, greatest(l.claimed_at, least(coalesce(g.started_at, l.claimed_at), settle_succeeded.now))) as started_at),
  ended as (
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, result)
    select f.task_id, f.token, f.claimed_at, f.started_at, settle_succeeded.now, f.attempt, 'succeeded', settle_succeeded.worker_id,
      case when f.result is not null then queues.storable(f.result) end
    from freed f)
  select array_agg(f.task_id order by f.n), array_agg(f.n order by f.n) into accepted, places from freed f;
end
$$;

comment on function queues.settle_succeeded(text, jsonb, timestamptz) is
  'Ends tasks that all succeeded: the short way through finish, which most batches take.';


-- functions/lease/storable.sql
-- The document, or a note in its place if nobody could read it back: what a handler returns never keeps its task from ending.
-- At most so many bytes; unless given, what the installation allows for a result.
create or replace function queues.storable(document jsonb, max_bytes bigint default null)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  -- The least that the limit may be: what is smaller needs no look into the settings.
  if document is null or octet_length(queues.text_of_plain(document)) <= 4096 then
    return document;
  end if;
  _problem := queues.problem_with_document(document,
    coalesce(max_bytes, (select s.value from queues.setting s where s.name = 'max_result_bytes')));
  if _problem is null then
    return document;
  end if;
  return jsonb_build_object('holdfast', 'not stored', 'reason', 'the value ' || _problem, 'stored_bytes', pg_column_size(document));
end
$$;

comment on function queues.storable(jsonb, bigint) is
  'The document, or a note in its place if nobody could read it back.';


-- functions/lease/sweep.sql
-- Puts tasks whose lease ended back to ready, or to dead_letter when their attempts are used up, and says how many.
-- Idle workers are woken for what is ready again. Any worker may call it, any number at once. For holdfast_worker and holdfast_operator.
-- Locks: lease rows, never waiting for one.
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
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _parked uuid[];
  _ended uuid[];
  _one_per_lane uuid[];
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  end if;

  with expired as materialized (
    select l.task_id, l.token from queues.lease l
    where l.lease_until < _now order by l.lease_until limit max_tasks
    for update skip locked),
  freed as (
    delete from queues.lease l using expired e
    where l.task_id = any (array(select task_id from expired)) and l.task_id = e.task_id and l.token = e.token
    returning l.*),
  settled as materialized (
    select f.*, f.attempt >= t.max_attempts as over
    from freed f
    cross join lateral (select t.max_attempts from queues.task t where t.task_id = f.task_id offset 0) t),
  ended as (
    -- Without the token: a worker that reports after this is told that it lost its lease, not that it was heard.
    insert into queues.outcome (task_id, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select s.task_id, s.claimed_at, s.started_at, _now, s.attempt, 'dead_letter', s.worker_id, 'lease_expired'
    from settled s where s.over),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, _now, s.lane_id, s.attempt from settled s where not s.over),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind, message, worker_id)
    select s.task_id, s.token, s.claimed_at, s.started_at, _now, case when not s.over then _now end, s.attempt, true,
      'lease_expired', format('worker %s was silent past the end of its lease at %s', s.worker_id, s.lease_until), s.worker_id
    from settled s)
  select count(*) filter (where not s.over), count(*) filter (where s.over),
    array_agg(s.task_id) filter (where s.deleted and not s.over), array_agg(s.task_id) filter (where s.over),
    array(select distinct on (s.lane_id) s.task_id from settled s where not s.over and not s.deleted)
  into recovered, dead, _parked, _ended, _one_per_lane from settled s;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _ended is not null then
    perform queues.tell_waiters(_ended);
  end if;
  perform queues.wake_for(r.task_id) from unnest(_one_per_lane) r(task_id);
  delete from queues.waiter w
  where w.task_id in (select held.task_id from queues.waiter held where held.until < _now for update skip locked);
  return next;
end
$$;

comment on function queues.sweep(integer) is
  'Puts tasks whose lease ended back to ready, or to dead_letter when their attempts are used up, and says how many.';


-- functions/lease/verdicts.sql
-- What became of each element of a finish of which not all were accepted: accepted, already_done, cancelled or lost.
-- Looks for the traces that an accepted call with the same token leaves.
create or replace function queues.verdicts(results jsonb, accepted integer[])
returns table (task_id uuid, verdict text)
language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _odd text;
begin
  select case
      when jsonb_typeof(r.element) <> 'object' then format('results[%s] must be an object', r.n - 1)
      when r.element ->> 'task_id' is null then format('results[%s].task_id must not be null', r.n - 1)
      when r.element ->> 'token' is null then format('results[%s].token must not be null', r.n - 1)
      else format('results[%s].status %s is not one of succeeded, failed, retry, snooze, cancelled', r.n - 1, r.element -> 'status')
    end into _odd
  from jsonb_array_elements(results) with ordinality r(element, n)
  where jsonb_typeof(r.element) <> 'object' or r.element ->> 'task_id' is null or r.element ->> 'token' is null
     or coalesce(r.element ->> 'status', 'none') not in ('succeeded', 'failed', 'retry', 'snooze', 'cancelled')
  order by r.n limit 1;
  if _odd is not null then
    raise exception using errcode = 'QF400', message = _odd;
  end if;

  return query
  -- "select true … limit 1" and not exists, which the planner may turn into reading a whole table once.
  select r.task_id, case
      when r.n = any (accepted) then 'accepted'
      when (select true from queues.act a
        where a.task_id = r.task_id and a.token = r.token and a.act = 'cancelled' limit 1) then 'cancelled'
      when (select true from queues.outcome o where o.task_id = r.task_id and o.token = r.token limit 1)
        or (select true from queues.error e
          where e.task_id = r.task_id and e.token = r.token and not e.recovered limit 1)
        or (select true from queues.act a
          where a.task_id = r.task_id and a.token = r.token and a.act in ('snoozed', 'retried') limit 1) then 'already_done'
      else 'lost' end
  from rows from (jsonb_to_recordset(results) as (task_id uuid, token bigint)) with ordinality r(task_id, token, n)
  order by r.n;
end
$$;

comment on function queues.verdicts(jsonb, integer[]) is
  'What became of each element of a finish of which not all were accepted: accepted, already_done, cancelled or lost.';


-- functions/queue/pause.sql
-- Stops claims from a queue; what runs goes on. Answers whether it was running until now.
-- For holdfast_operator. Locks: the queue's row in paused_queue.
create or replace function queues.pause(queue text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_name('queue', queue);
  reason := left(reason, 2000);
  insert into queues.paused_queue (queue, paused_at, paused_by, reason)
  values (queue, queues.clock(), session_user, reason) on conflict do nothing;
  if not found then
    return false;
  end if;
  insert into queues.act (queue, act, occurred_at, actor, reason)
  values (queue, 'paused', queues.clock(), session_user, reason);
  return true;
end
$$;

comment on function queues.pause(text, text) is 'Stops claims from a queue; what runs goes on.';


-- functions/queue/resume.sql
-- Lets claims from a paused queue go on. Answers whether it was paused until now.
-- For holdfast_operator. Locks: the queue's row in paused_queue.
create or replace function queues.resume(queue text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_name('queue', queue);
  reason := left(reason, 2000);
  delete from queues.paused_queue p where p.queue = resume.queue;
  if not found then
    return false;
  end if;
  insert into queues.act (queue, act, occurred_at, actor, reason)
  values (queue, 'resumed', queues.clock(), session_user, reason);
  perform pg_notify('holdfast', resume.queue);
  return true;
end
$$;

comment on function queues.resume(text, text) is 'Lets claims from a paused queue go on.';


-- functions/task/cancel.sql
-- Cancels a task that has not ended and answers the status it led to: cancelled, or how it had already ended.
-- A running task is cancelled at once; its worker learns of it at its next heartbeat and can no longer change it.
-- For holdfast_client (its own tasks) and holdfast_operator. Locks: the ready row, else the lease, else the deletion.
create or replace function queues.cancel(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _status text;
  _token bigint;
  _attempt integer;
  _worker_id text;
begin
  perform queues.own_task(task_id);
  reason := left(reason, 2000);
  -- A task may move from one table to the next between two looks: look again until it stood still.
  for _try in 1..100 loop
    with waiting as (
      delete from queues.ready r where r.task_id = cancel.task_id returning r.task_id, r.attempt)
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    select w.task_id, _now, w.attempt, 'cancelled', cancel.reason from waiting w;
    exit when found;

    with held as (
      delete from queues.lease l where l.task_id = cancel.task_id returning l.*)
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select h.task_id, h.token, h.claimed_at, h.started_at, _now, h.attempt, 'cancelled', h.worker_id, cancel.reason from held h
    returning token, attempt, worker_id into _token, _attempt, _worker_id;
    exit when found;

    select d.parked_attempt into _attempt from queues.deletion d
    where d.task_id = cancel.task_id and d.parked_run_at is not null for update;
    if found then
      update queues.deletion d set parked_run_at = null, parked_lane_id = null, parked_attempt = null
      where d.task_id = cancel.task_id;
      insert into queues.outcome (task_id, finished_at, attempt, status, reason)
      values (task_id, _now, _attempt, 'cancelled', reason);
      exit;
    end if;

    select o.status into _status from queues.outcome o where o.task_id = cancel.task_id;
    if found then
      return _status;
    end if;
    perform queues.give_up_after(_try, task_id);
  end loop;

  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason)
  values (task_id, 'cancelled', _now, _token, _attempt, _worker_id, session_user, reason);
  perform queues.tell_waiters(array[task_id]);
  return 'cancelled';
end
$$;

comment on function queues.cancel(uuid, text) is
  'Cancels a task that has not ended and answers the status it led to: cancelled, or how it had already ended.';


-- functions/task/count_ahead.sql
-- How many due tasks of its queue come before a waiting task; counts to 10,000.
create or replace function queues.count_ahead(task_id uuid, now timestamptz)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from (
    select from queues.ready mine
    join queues.lane my_lane on my_lane.lane_id = mine.lane_id
    join queues.lane other on other.queue = my_lane.queue and other.priority >= my_lane.priority
    join queues.ready ahead on ahead.lane_id = other.lane_id and ahead.run_at <= now
    where mine.task_id = count_ahead.task_id
      and (other.priority > my_lane.priority or (ahead.run_at, ahead.task_id) < (mine.run_at, mine.task_id))
    limit 10000) those
$$;

comment on function queues.count_ahead(uuid, timestamptz) is
  'How many due tasks of its queue come before a waiting task; counts to 10,000.';


-- functions/task/delete_task.sql
-- Soft-deletes a task, whatever its status: it is never claimed again, its key is free, and it can be restored.
-- One that runs may still end; its worker is told at its next heartbeat. Answers deleted.
-- For holdfast_operator. Locks: the ready row, else the lease, else the outcome; then the deletion, then the key.
create or replace function queues.delete_task(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _waiting queues.ready;
begin
  perform queues.own_task(task_id);
  reason := left(reason, 2000);
  for _try in 1..100 loop
    if exists (select from queues.deletion d where d.task_id = delete_task.task_id) then
      return 'deleted';
    end if;
    delete from queues.ready r where r.task_id = delete_task.task_id returning r.* into _waiting;
    exit when found;
    update queues.lease l set deleted = true where l.task_id = delete_task.task_id;
    exit when found;
    -- More than a lock, so that a retry with an older snapshot, which does not see the deletion, cannot get past it.
    update queues.outcome o set status = o.status where o.task_id = delete_task.task_id;
    exit when found;
    perform queues.give_up_after(_try, task_id);
  end loop;

  insert into queues.deletion (task_id, deleted_at, deleted_by, reason, parked_run_at, parked_lane_id, parked_attempt)
  values (task_id, _now, session_user, reason, _waiting.run_at, _waiting.lane_id, _waiting.attempt)
  on conflict do nothing;
  if found then
    delete from queues.task_key k using queues.task t
    where t.task_id = delete_task.task_id and k.type = t.type and k.idempotency_key = t.idempotency_key and k.task_id = t.task_id;
    insert into queues.act (task_id, act, occurred_at, actor, reason)
    values (task_id, 'deleted', _now, session_user, reason);
  end if;
  return 'deleted';
end
$$;

comment on function queues.delete_task(uuid, text) is
  'Soft-deletes a task, whatever its status: it is never claimed again, its key is free, and it can be restored.';


-- functions/task/explain.sql
-- Why a task is not running now, in plain words. For holdfast_client (its own tasks), holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.explain(task_id uuid)
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _task record;
begin
  select s.*, d.deleted_by into _task
  from queues.task_status s left join queues.deletion d on d.task_id = s.task_id
  where s.task_id = explain.task_id;
  if not found then
    return format('There is no task %s: the id is wrong, retention has removed it, or it belongs to another login.', coalesce(task_id::text, 'null'));
  elsif _task.deleted_at is not null then
    return format('It was deleted at %s by %s%s. Restore it to let it go on.',
      _task.deleted_at, _task.deleted_by, coalesce(' because: ' || _task.delete_reason, ''));
  elsif _task.finished_at is not null then
    return queues.explain_end(_task.status, _task.finished_at, _task.attempt, _task.max_attempts, _task.reason, _task.last_error);
  elsif _task.claimed_at is not null then
    return format('%s leased by worker %s until %s (attempt %s of %s)%s.',
      case when _task.status = 'running' then 'It is running,' else 'It is claimed and about to run,' end,
      _task.worker_id, _task.lease_until, _task.attempt, _task.max_attempts,
      case when _task.lease_until < _now then '; the lease has ended, so the next sweep puts it back' else '' end);
  end if;
  return queues.explain_wait(_task.task_id, _task.queue, _task.type, _task.run_at, _task.attempt, _task.max_attempts, _task.last_error, _now);
end
$$;

comment on function queues.explain(uuid) is 'Why a task is not running now, in plain words.';


-- functions/task/explain_end.sql
-- How a task ended, in plain words.
create or replace function queues.explain_end(
  status text, finished_at timestamptz, attempt integer, max_attempts integer, reason text, last_error text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case status
    when 'succeeded' then format('It succeeded at %s, on attempt %s of %s.', finished_at, attempt, max_attempts)
    when 'failed' then format('It failed at %s, on attempt %s of %s, and was not worth trying again: %s. Retry it once the cause is mended.',
      finished_at, attempt, max_attempts, coalesce(last_error, reason, 'no error was reported'))
    when 'dead_letter' then format('Its attempts were used up at %s (%s of %s): %s. Retry it once the cause is mended.',
      finished_at, attempt, max_attempts, coalesce(last_error, reason, 'no error was reported'))
    else format('It was cancelled at %s%s. Retry it to let it run after all.', finished_at, coalesce(' because: ' || reason, '')) end
$$;

comment on function queues.explain_end(text, timestamptz, integer, integer, text, text) is 'How a task ended, in plain words.';


-- functions/task/explain_wait.sql
-- Why a waiting task waits, in plain words: its time, its queue, its workers, those before it.
create or replace function queues.explain_wait(
  task_id uuid, queue text, type text, run_at timestamptz, attempt integer, max_attempts integer, last_error text, now timestamptz)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _pause queues.paused_queue;
  _timeout constant interval := (select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds');
  _live integer;
  _ahead integer;
begin
  if explain_wait.run_at > now then
    return case when attempt > 0
      then format('Attempt %s of %s failed (%s); it is tried again at %s.', attempt, max_attempts, coalesce(last_error, 'no error was reported'), explain_wait.run_at)
      else format('It is scheduled for %s.', explain_wait.run_at) end;
  end if;

  select p.* into _pause from queues.paused_queue p where p.queue = explain_wait.queue;
  if found then
    return format('Queue %s was paused at %s by %s%s. Resume it to let its tasks run.',
      _pause.queue, _pause.paused_at, _pause.paused_by, coalesce(' because: ' || _pause.reason, ''));
  end if;

  select count(*) into _live from queues.worker w
  where w.last_heartbeat > now - _timeout
    and (explain_wait.queue = any (w.queues) or exists (select from unnest(w.type_prefixes) p where starts_with(explain_wait.type, p)));
  if _live = 0 then
    return format('It is due, but no live worker subscribes to queue %s or to a prefix of type %s. Start one.', explain_wait.queue, explain_wait.type);
  end if;

  _ahead := queues.count_ahead(task_id, now);
  return format('It is due and waits for one of %s live worker%s; %s.', _live, case when _live > 1 then 's' else '' end,
    case _ahead when 0 then 'it is the next of its queue'
      when 10000 then '10000 or more of its queue come before it'
      else format('%s of its queue come%s before it', _ahead, case _ahead when 1 then 's' else '' end) end);
end
$$;

comment on function queues.explain_wait(uuid, text, text, timestamptz, integer, integer, text, timestamptz) is
  'Why a waiting task waits, in plain words: its time, its queue, its workers, those before it.';


-- functions/task/give_up_after.sql
-- Ends a search for a task that moves from table to table faster than it can be caught.
create or replace function queues.give_up_after(tries integer, task_id uuid)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if tries >= 100 then
    raise exception using errcode = 'QF503', message = format('task %s moves too fast to be caught; try again', task_id);
  end if;
end
$$;

comment on function queues.give_up_after(integer, uuid) is
  'Ends a search for a task that moves from table to table faster than it can be caught.';


-- functions/task/lane_for.sql
-- The lane for a queue, type and priority, made if there is none.
create or replace function queues.lane_for(queue text, type text, priority integer)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lane_id integer;
begin
  select l.lane_id into _lane_id from queues.lane l
  where l.queue = lane_for.queue and l.type = lane_for.type and l.priority = lane_for.priority
  order by l.lane_id limit 1;
  if not found then
    insert into queues.lane (queue, type, priority) values (queue, type, priority) returning lane_id into _lane_id;
  end if;
  return _lane_id;
end
$$;

comment on function queues.lane_for(text, text, integer) is 'The lane for a queue, type and priority, made if there is none.';


-- functions/task/matches.sql
-- Whether a task passes the filters of a listing. No pinned path, so that it is inlined.
create or replace function queues.matches(task queues.task, queue text, type_prefix text, since timestamptz, all_tasks boolean)
returns boolean
language sql stable
as $$
  select (queue is null or task.queue = queue)
    and (type_prefix is null or pg_catalog.starts_with(task.type, type_prefix))
    and (since is null or task.created_at >= since)
    and (all_tasks or task.enqueued_by = session_user)
$$;

comment on function queues.matches(queues.task, text, text, timestamptz, boolean) is
  'Whether a task passes the filters of a listing.';


-- functions/task/may_read_all.sql
-- Whether the session may read every task; if not, it reads those it enqueued itself.
create or replace function queues.may_read_all()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select pg_has_role(session_user, 'holdfast_reader', 'member') or pg_has_role(session_user, 'holdfast_worker', 'member')
$$;

comment on function queues.may_read_all() is
  'Whether the session may read every task; if not, it reads those it enqueued itself.';


-- functions/task/own_task.sql
-- Refuses a task that does not exist, or that the session may not touch: both read the same, so that ids cannot be probed.
-- An operator may touch every task, and so may a worker's session inside a business function; a client its own.
create or replace function queues.own_task(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from queues.task t
  where t.task_id = own_task.task_id
    and (t.enqueued_by = session_user or pg_has_role(session_user, 'holdfast_operator', 'member')
      or pg_has_role(session_user, 'holdfast_worker', 'member'));
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another login.';
  end if;
end
$$;

comment on function queues.own_task(uuid) is
  'Refuses a task that does not exist, or that the session may not touch.';


-- functions/task/reschedule.sql
-- Moves a waiting task to another time and answers its status; a task that does not wait is left as it is.
-- For holdfast_client (its own tasks), holdfast_process and holdfast_operator. Locks: the ready row.
create or replace function queues.reschedule(task_id uuid, run_at timestamptz, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _former queues.ready;
begin
  perform queues.own_task(task_id);
  reason := left(reason, 2000);
  perform queues.parse_time('run_at', coalesce(to_jsonb(reschedule.run_at) #>> '{}', ''), _now);
  for _try in 1..100 loop
    delete from queues.ready r where r.task_id = reschedule.task_id returning r.* into _former;
    exit when found;
    if not exists (select from queues.ready r where r.task_id = reschedule.task_id) then
      return queues.status_now(task_id);
    end if;
    perform queues.give_up_after(_try, task_id);
  end loop;

  -- A new row, not an update: claims rely on ready rows never moving.
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  values (task_id, run_at, _former.lane_id, _former.attempt);
  insert into queues.act (task_id, act, occurred_at, actor, reason, data)
  values (task_id, 'rescheduled', _now, session_user, reason, jsonb_build_object('from', _former.run_at, 'to', run_at));
  perform queues.wake_for(task_id);
  return queues.status_now(task_id);
end
$$;

comment on function queues.reschedule(uuid, timestamptz, text) is
  'Moves a waiting task to another time and answers its status; a task that does not wait is left as it is.';


-- functions/task/restore_task.sql
-- Undoes a soft delete and answers the status that the task has again. Refused if its key has been given to another task.
-- For holdfast_operator. Locks: the lease, then the deletion, then the key.
create or replace function queues.restore_task(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _deletion queues.deletion;
  _task queues.task;
  _holder uuid;
begin
  perform queues.own_task(task_id);
  reason := left(reason, 2000);
  select t.* into _task from queues.task t where t.task_id = restore_task.task_id;
  -- Had before the deletion is looked for, deleted or not: a delete that is under way holds it until it commits.
  perform from queues.lease l where l.task_id = restore_task.task_id for update;
  delete from queues.deletion d where d.task_id = restore_task.task_id returning d.* into _deletion;
  if not found then
    return queues.status_now(task_id);
  end if;
  update queues.lease l set deleted = false where l.task_id = restore_task.task_id and l.deleted;

  if _task.idempotency_key is not null then
    insert into queues.task_key (type, idempotency_key, task_id)
    values (_task.type, _task.idempotency_key, task_id) on conflict do nothing;
    if not found then
      select k.task_id into _holder from queues.task_key k
      where k.type = _task.type and k.idempotency_key = _task.idempotency_key;
      raise exception using errcode = 'QF409',
        message = format('task %s cannot be restored: its idempotency_key %s now stands for task %s',
          task_id, to_json(_task.idempotency_key), coalesce(_holder::text, 'another')),
        hint = 'Delete that task first, or leave this one deleted.';
    end if;
  end if;
  if _deletion.parked_run_at is not null then
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    values (task_id, _deletion.parked_run_at, _deletion.parked_lane_id, _deletion.parked_attempt);
  end if;
  insert into queues.act (task_id, act, occurred_at, actor, reason)
  values (task_id, 'restored', _now, session_user, reason);
  perform queues.wake_for(task_id);
  return queues.status_now(task_id);
end
$$;

comment on function queues.restore_task(uuid, text) is
  'Undoes a soft delete and answers the status that the task has again.';


-- functions/task/retry.sql
-- Gives a task that failed, died or was cancelled a fresh set of attempts, from now on. Answers pending.
-- For holdfast_operator. Locks: the outcome.
create or replace function queues.retry(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _former queues.outcome;
begin
  perform queues.own_task(task_id);
  reason := left(reason, 2000);
  delete from queues.outcome o
  where o.task_id = retry.task_id and o.status in ('failed', 'dead_letter', 'cancelled')
  returning o.* into _former;
  if not found then
    raise exception using errcode = 'QF412',
      message = format('task %s cannot be retried: it is %s', task_id, queues.status_now(task_id)),
      hint = 'Only tasks that are failed, dead_letter or cancelled can be retried.';
  end if;
  -- After the outcome was had: delete_task holds it while it writes the deletion.
  if exists (select from queues.deletion d where d.task_id = retry.task_id) then
    raise exception using errcode = 'QF412', message = format('task %s is deleted and cannot be retried', task_id),
      hint = 'Restore it first.';
  end if;

  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select t.task_id, _now, queues.lane_for(t.queue, t.type, t.priority), 0
  from queues.task t where t.task_id = retry.task_id;
  -- With the token, so that a worker that repeats its accepted report is not told that it lost its lease.
  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
  values (task_id, 'retried', _now, _former.token, _former.attempt, _former.worker_id, session_user, reason, jsonb_build_object(
    'status', _former.status, 'reason', _former.reason, 'claimed_at', _former.claimed_at,
    'started_at', _former.started_at, 'finished_at', _former.finished_at));
  perform queues.wake_for(task_id);
  return 'pending';
end
$$;

comment on function queues.retry(uuid, text) is
  'Gives a task that failed, died or was cancelled a fresh set of attempts, from now on.';


-- functions/task/status_now.sql
-- The status of one task, for messages.
create or replace function queues.status_now(task_id uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), queues.clock())
  from queues.task t
  left join queues.ready r on r.task_id = t.task_id
  left join queues.lease l on l.task_id = t.task_id
  left join queues.outcome o on o.task_id = t.task_id
  left join queues.deletion d on d.task_id = t.task_id
  where t.task_id = status_now.task_id
$$;

comment on function queues.status_now(uuid) is 'The status of one task, for messages.';


-- functions/task/status_of.sql
-- The status of a task, in the one word that people see. No pinned path, so that it can be read in a view.
create or replace function queues.status_of(
  outcome_status text, claimed_at timestamptz, started_at timestamptz, attempt integer, run_at timestamptz, now timestamptz)
returns text
language sql immutable parallel safe
as $$
  select case
    when outcome_status is not null then outcome_status
    when claimed_at is not null then case when started_at is null then 'claimed' else 'running' end
    when attempt > 0 then 'retrying'
    when run_at > now then 'scheduled'
    else 'pending' end
$$;

comment on function queues.status_of(text, timestamptz, timestamptz, integer, timestamptz, timestamptz) is
  'The status of a task, in the one word that people see.';


-- functions/task/wake_for.sql
-- Wakes idle workers for one task that has just become due.
create or replace function queues.wake_for(task_id uuid)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select queues.wake(array_agg(row(1, t.task_id, t.type, t.queue, t.executor, t.priority, r.run_at, t.max_attempts,
    null, null, null, null, null, null)::queues.new_task), queues.clock())
  from queues.task t join queues.ready r on r.task_id = t.task_id where t.task_id = wake_for.task_id
$$;

comment on function queues.wake_for(uuid) is 'Wakes idle workers for one task that has just become due.';


-- functions/time/allow_to_lose.sql
-- Lets the commit of this transaction not wait for the disk, unless it already holds something else that must not be lost.
-- For calls that a crash may undo without harm.
create or replace function queues.allow_to_lose()
returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case when pg_current_xact_id_if_assigned() is null
    then set_config('synchronous_commit', 'off', true) = 'off' else false end
$$;

comment on function queues.allow_to_lose() is
  'Lets the commit of this transaction not wait for the disk, unless it already holds something else that must not be lost.';


-- functions/time/clock.sql
-- The only clock. Every stored time comes from here; tests replace this function as the owner.
-- No pinned path, so that callers inline it.
create or replace function queues.clock()
returns timestamptz
language sql volatile parallel safe
as $$ select pg_catalog.clock_timestamp() $$;

comment on function queues.clock() is 'The only clock: every stored time comes from here.';


-- functions/time/new_task_id.sql
-- A UUIDv7 that grows from call to call within a session, so that tasks of one batch keep their order.
-- Where the server has no uuidv7(): 48 bits of milliseconds, 12 bits of their fraction, 18 bits of a sequence, the rest random.
create sequence if not exists queues.task_number as bigint cycle;

do $install$
begin
  if pg_catalog.current_setting('server_version_num')::integer >= 180000 then
    create or replace function queues.new_task_id()
    returns uuid
    language sql volatile parallel safe
    as $$ select pg_catalog.uuidv7() $$;
  else
    create or replace function queues.new_task_id()
    returns uuid
    language sql volatile
    as $$
      select pg_catalog.encode(
        pg_catalog.substring(pg_catalog.int8send(micros / 1000), 3, 6)
        || pg_catalog.substring(pg_catalog.int8send(x'7000'::bigint | ((micros % 1000) * 4096 / 1000)), 7, 2)
        || pg_catalog.substring(pg_catalog.int8send(
             (2::bigint << 62) | ((pg_catalog.nextval('queues.task_number') & 262143) << 44)), 1, 3)
        || pg_catalog.substring(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()), 12, 5), 'hex')::uuid
      from (select (pg_catalog.extract('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint as micros) t
    $$;
  end if;
end
$install$;

comment on function queues.new_task_id() is 'A UUIDv7 that grows from call to call within a session.';


-- functions/time/nth_task_id.sql
-- The id of the nth task of a batch: the batch's own id with its last 24 bits counting up. No pinned path, so that it is inlined.
create or replace function queues.nth_task_id(first_id uuid, n bigint)
returns uuid
language sql immutable parallel safe
as $$ select (pg_catalog.left(first_id::text, 30) || pg_catalog.lpad(pg_catalog.to_hex(n), 6, '0'))::uuid $$;

comment on function queues.nth_task_id(uuid, bigint) is
  'The id of the nth task of a batch: the batch''s own id with its last 24 bits counting up.';


-- functions/waiting/tell_waiters.sql
-- Tells those who wait for one of these tasks that it ended, and nobody if nobody waits.
create or replace function queues.tell_waiters(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.waiter) then
    perform pg_notify('holdfast_done', w.task_id::text)
    from queues.waiter w join queues.outcome o on o.task_id = w.task_id
    where w.task_id = any (task_ids);
    -- A row that a session holds by an open call of watch is left for the sweep: nobody waits for it here.
    delete from queues.waiter w
    where w.task_id in (
      select held.task_id from queues.waiter held
      where held.task_id = any (task_ids) and exists (select from queues.outcome o where o.task_id = held.task_id)
      for update skip locked);
  end if;
end
$$;

comment on function queues.tell_waiters(uuid[]) is
  'Tells those who wait for one of these tasks that it ended, and nobody if nobody waits.';


-- functions/waiting/watch.sql
-- Asks to be told on channel holdfast_done, with the task_id as payload, when a task ends, and answers its status now. A hint
-- only: who waits asks again from time to time. For holdfast_client (its own tasks), holdfast_reader and holdfast_operator.
-- Locks: the waiter's row.
create or replace function queues.watch(task_id uuid, ttl interval default '1 minute')
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _hasty constant boolean := queues.allow_to_lose();
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.task t where t.task_id = watch.task_id and queues.may_read_all()) then
    perform queues.own_task(task_id);
  end if;
  if ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  if not exists (select from queues.outcome o where o.task_id = watch.task_id) then
    insert into queues.waiter as w (task_id, until) values (task_id, _now + ttl)
    on conflict (task_id) do update set until = excluded.until
    where w.until < excluded.until - ttl / 2;
  end if;
  -- A statement of its own, so that it sees an outcome that came meanwhile.
  return queues.status_now(task_id);
end
$$;

comment on function queues.watch(uuid, interval) is
  'Asks to be told on channel holdfast_done when a task ends, and answers its status now.';


-- functions/worker/lead.sql
-- Makes the worker leader for a term, or prolongs its term, and says whether it leads now. Leading is a convenience:
-- nothing is unsafe while nobody leads. For holdfast_worker. Locks: the leadership.
create or replace function queues.lead(worker_id text, term interval default '15 seconds')
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now timestamptz;
begin
  if worker_id is null or worker_id = '' or term is null or term not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400',
      message = 'lead needs a worker_id and a term between 1 second and 1 hour';
  end if;
  perform from queues.leadership l for update;
  -- Read after the row was had: a wait for it must not lengthen the term.
  _now := queues.clock();
  insert into queues.leadership as l (worker_id, term, leader_since, leader_until)
  values (worker_id, 1, _now, _now + lead.term)
  on conflict (only_one) do update
  set worker_id = excluded.worker_id,
      term = l.term + (l.worker_id <> excluded.worker_id or l.leader_until < _now)::integer,
      leader_since = case when l.worker_id <> excluded.worker_id or l.leader_until < _now then _now else l.leader_since end,
      leader_until = excluded.leader_until
  where l.worker_id = excluded.worker_id or l.leader_until < _now;
  return found;
end
$$;

comment on function queues.lead(text, interval) is
  'Makes the worker leader for a term, or prolongs its term, and says whether it leads now.';


-- functions/worker/mark_idle.sql
-- Says that a worker waits for a wake-up, or no longer does. Answers whether it is registered.
-- For holdfast_worker. Locks: the worker's row.
create or replace function queues.mark_idle(worker_id text, idle boolean)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _hasty constant boolean := queues.allow_to_lose();
begin
  update queues.worker w set idle = coalesce(mark_idle.idle, false) where w.worker_id = mark_idle.worker_id;
  return found;
end
$$;

comment on function queues.mark_idle(text, boolean) is 'Says that a worker waits for a wake-up, or no longer does.';


-- functions/worker/register_worker.sql
-- Enters a worker into the registry. A worker takes a new id at every start. For holdfast_worker. Locks: the worker's row.
create or replace function queues.register_worker(
  worker_id text,
  hostname text default 'unknown',
  pid integer default null,
  version text default null,
  queues text[] default null,
  type_prefixes text[] default null,
  concurrency integer default 1)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  perform queues.check_claim(worker_id, 1, queues, type_prefixes, null, null);
  if hostname is null or concurrency is null or concurrency < 1 then
    raise exception using errcode = 'QF400',
      message = case when hostname is null then 'hostname must not be null' else 'concurrency must be at least 1' end;
  end if;
  insert into queues.worker as w (worker_id, hostname, pid, version, queues, type_prefixes, concurrency, in_flight, idle,
    started_at, last_heartbeat)
  values (worker_id, hostname, pid, version,
    coalesce(register_worker.queues, case when type_prefixes is null then array['default'] else '{}' end),
    coalesce(type_prefixes, '{}'), concurrency, 0, false, _now, _now)
  on conflict (worker_id) do update
  set hostname = excluded.hostname, pid = excluded.pid, version = excluded.version, queues = excluded.queues,
      type_prefixes = excluded.type_prefixes, concurrency = excluded.concurrency, in_flight = 0, idle = false,
      started_at = excluded.started_at, last_heartbeat = excluded.last_heartbeat;
end
$$;

comment on function queues.register_worker(text, text, integer, text, text[], text[], integer) is
  'Enters a worker into the registry. A worker takes a new id at every start.';


-- functions/worker/retire_worker.sql
-- Takes a worker out of the registry, and its leadership from it. Answers whether it was there. Its leases are not touched: it releases
-- them itself, or they end. For holdfast_worker. Locks: the leadership, then the worker's row.
create or replace function queues.retire_worker(worker_id text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from queues.leadership l where l.worker_id = retire_worker.worker_id;
  delete from queues.worker w where w.worker_id = retire_worker.worker_id;
  return found;
end
$$;

comment on function queues.retire_worker(text) is 'Takes a worker out of the registry, and its leadership from it.';


-- views to come
set local holdfast.views = '[
{"name": "queues.queue_act", "query": "select a.act_id, a.queue, a.act, a.occurred_at, a.actor, a.reason\nfrom queues.act a where a.queue is not null"},
{"name": "queues.queue_status", "query": "select q.queue,\n  coalesce(waiting.due, 0) as due, coalesce(waiting.scheduled, 0) as scheduled, coalesce(held.running, 0) as running,\n  waiting.oldest_due, p.paused_at, p.paused_by, p.reason as pause_reason,\n  (select pg_catalog.count(*) from queues.worker w\n   where (q.queue = any (w.queues) or exists (\n       select from queues.lane l, pg_catalog.unnest(w.type_prefixes) prefix\n       where l.queue = q.queue and pg_catalog.starts_with(l.type, prefix)))\n     and w.last_heartbeat > queues.clock() - (\n       select s.value * interval ''1 second'' from queues.setting s where s.name = ''worker_timeout_seconds'')) as live_workers\nfrom (select l.queue from queues.lane l union select p.queue from queues.paused_queue p) q\nleft join lateral (\n  select pg_catalog.count(*) filter (where r.run_at <= now.now) as due,\n    pg_catalog.count(*) filter (where r.run_at > now.now) as scheduled,\n    pg_catalog.min(r.run_at) filter (where r.run_at <= now.now) as oldest_due\n  from (select queues.clock() as now offset 0) now\n  cross join queues.lane l join queues.ready r on r.lane_id = l.lane_id where l.queue = q.queue) waiting on true\nleft join lateral (\n  select pg_catalog.count(*) as running\n  from queues.lane l join queues.lease le on le.lane_id = l.lane_id where l.queue = q.queue) held on true\nleft join queues.paused_queue p on p.queue = q.queue"},
{"name": "queues.task_error", "query": "select e.error_id, e.task_id, e.attempt, e.kind, e.message, e.detail, e.worker_id, e.recovered, e.claimed_at, e.started_at,\n  e.occurred_at, e.retry_at\nfrom queues.error e\nwhere (select queues.may_read_all())\n   or exists (select from queues.task t where t.task_id = e.task_id and t.enqueued_by = session_user)"},
{"name": "queues.task_event", "query": "select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data\nfrom (\n  select t.task_id, ''created'' as event_type, t.created_at as occurred_at, null::integer as attempt, null::text as worker_id,\n    t.enqueued_by as actor, null::text as reason, pg_catalog.jsonb_build_object(''run_at'', t.run_at) as data, 0 as rank\n  from queues.task t\n\n  union all\n  select l.task_id, v.event_type, v.occurred_at, l.attempt, l.worker_id, null, null, null, v.rank\n  from queues.lease l\n  cross join lateral (values (''claimed'', l.claimed_at, 2), (''started'', l.started_at, 3)) v(event_type, occurred_at, rank)\n  where v.occurred_at is not null\n\n  union all\n  select o.task_id, v.event_type, v.occurred_at, o.attempt, o.worker_id, null,\n    case when v.rank > 3 then o.reason end, null, v.rank\n  from (\n    select o.task_id, o.status, o.claimed_at, o.started_at, o.finished_at, o.attempt, o.worker_id, o.reason from queues.outcome o\n    union all\n    -- A retry takes the outcome away: how the task had ended is kept with the act.\n    select a.task_id, a.data ->> ''status'', (a.data ->> ''claimed_at'')::timestamptz, (a.data ->> ''started_at'')::timestamptz,\n      (a.data ->> ''finished_at'')::timestamptz, a.attempt, a.worker_id, a.data ->> ''reason''\n    from queues.act a where a.act = ''retried'') o\n  cross join lateral (values (''claimed'', o.claimed_at, 2), (''started'', o.started_at, 3), (o.status, o.finished_at, 6))\n    v(event_type, occurred_at, rank)\n  where v.occurred_at is not null\n    -- An act of a person tells of the cancelling itself, and an error of the attempt that it ended.\n    and not (o.status = ''cancelled'' and v.rank = 6 and exists (\n      select from queues.act a where a.task_id = o.task_id and a.act = ''cancelled'' and a.occurred_at = o.finished_at))\n    and not (v.rank < 6 and exists (\n      select from queues.error e where e.task_id = o.task_id and e.claimed_at = o.claimed_at))\n\n  union all\n  select e.task_id, v.event_type, v.occurred_at, e.attempt, e.worker_id, null, v.reason, v.data, v.rank\n  from queues.error e\n  cross join lateral (values\n    (''claimed'', e.claimed_at, null::text, null::jsonb, 2),\n    (''started'', e.started_at, null, null, 3),\n    (case when e.recovered then ''recovered'' else ''failed'' end, e.occurred_at, e.message,\n      pg_catalog.jsonb_build_object(''kind'', e.kind), 4),\n    (''retried'', case when e.retry_at is not null and not e.recovered then e.occurred_at end, null,\n      pg_catalog.jsonb_build_object(''run_at'', e.retry_at), 5)) v(event_type, occurred_at, reason, data, rank)\n  where v.occurred_at is not null\n    and not (v.event_type = ''failed'' and (\n      exists (select from queues.outcome o\n        where o.task_id = e.task_id and o.status = ''failed'' and o.finished_at = e.occurred_at)\n      or exists (select from queues.act a\n        where a.task_id = e.task_id and a.act = ''retried'' and a.data ->> ''status'' = ''failed''\n          and (a.data ->> ''finished_at'')::timestamptz = e.occurred_at)))\n\n  union all\n  select a.task_id, v.event_type, v.occurred_at, a.attempt, a.worker_id,\n    case when v.rank = 7 then a.actor end, case when v.rank = 7 then a.reason end, case when v.rank = 7 then a.data end, v.rank\n  from queues.act a\n  cross join lateral (values\n    (''claimed'', case when a.act in (''released'', ''snoozed'') then (a.data ->> ''claimed_at'')::timestamptz end, 2),\n    (''started'', case when a.act in (''released'', ''snoozed'') then (a.data ->> ''started_at'')::timestamptz end, 3),\n    (a.act, a.occurred_at, 7)) v(event_type, occurred_at, rank)\n  where a.task_id is not null and v.occurred_at is not null\n) e\nwhere (select queues.may_read_all())\n   or exists (select from queues.task t where t.task_id = e.task_id and t.enqueued_by = session_user)\norder by e.task_id, e.occurred_at, e.rank"},
{"name": "queues.task_status", "query": "select\n  t.task_id, t.type, t.queue, t.executor,\n  queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),\n    coalesce(r.run_at, d.parked_run_at), queues.clock()) as status,\n  t.priority, t.payload, o.result, e.error, e.message as last_error, t.idempotency_key,\n  pg_catalog.encode(t.spec_hash, ''hex'') as spec_hash,\n  coalesce(o.attempt, l.attempt, r.attempt, d.parked_attempt) as attempt, t.max_attempts,\n  coalesce(r.run_at, l.run_at, d.parked_run_at, t.run_at) as run_at,\n  coalesce(o.worker_id, l.worker_id) as worker_id, l.lease_until, t.created_at,\n  coalesce(o.claimed_at, l.claimed_at) as claimed_at, coalesce(o.started_at, l.started_at) as started_at, o.finished_at,\n  greatest(t.created_at, o.finished_at, l.claimed_at, l.started_at, d.deleted_at, e.occurred_at, a.occurred_at) as updated_at,\n  d.deleted_at, d.reason as delete_reason,\n  o.reason, l.progress, t.timeout, t.lease, t.metadata, t.enqueued_by\nfrom queues.task t\nleft join queues.ready r on r.task_id = t.task_id\nleft join queues.lease l on l.task_id = t.task_id\nleft join queues.outcome o on o.task_id = t.task_id\nleft join queues.deletion d on d.task_id = t.task_id\nleft join lateral (\n  select e.message, e.occurred_at, pg_catalog.jsonb_build_object(''kind'', e.kind, ''message'', e.message, ''attempt'', e.attempt,\n    ''occurred_at'', e.occurred_at, ''worker_id'', e.worker_id, ''detail'', e.detail) as error\n  from queues.error e where e.task_id = t.task_id order by e.error_id desc limit 1) e on true\nleft join lateral (\n  select a.occurred_at from queues.act a where a.task_id = t.task_id order by a.act_id desc limit 1) a on true\nwhere (select queues.may_read_all()) or t.enqueued_by = session_user"},
{"name": "queues.worker_status", "query": "select w.worker_id, w.hostname, w.pid, w.version, w.queues, w.type_prefixes, w.concurrency, w.in_flight, w.idle,\n  w.started_at, w.last_heartbeat,\n  w.last_heartbeat > queues.clock() - (\n    select s.value * interval ''1 second'' from queues.setting s where s.name = ''worker_timeout_seconds'') as live,\n  coalesce(l.leader_until > queues.clock(), false) as leader, l.term, l.leader_until\nfrom queues.worker w\nleft join queues.leadership l on l.worker_id = w.worker_id"}
]';


-- install/find_stale_views.sql
-- Finds out whether "create or replace" can replace the views: none may have left, and each may only have gained
-- columns at its end. To see that, each is made once under a name of no importance.
do $$
declare
  _wanted constant jsonb := pg_catalog.current_setting('holdfast.views');
  _view record;
  _stale boolean;
begin
  _stale := exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('queues', 'internal') and c.relkind = 'v'
      and not exists (
        select from pg_catalog.jsonb_array_elements(_wanted) w where w ->> 'name' = n.nspname || '.' || c.relname));

  for _view in
    select w ->> 'query' as query, pg_catalog.to_regclass(w ->> 'name') as oid
    from pg_catalog.jsonb_array_elements(_wanted) w
    where pg_catalog.to_regclass(w ->> 'name') is not null
  loop
    exit when _stale;
    begin
      execute pg_catalog.format('create view queues.holdfast_probe as %s', _view.query);
      _stale := exists (
        select from pg_catalog.pg_attribute o
        where o.attrelid = _view.oid and not exists (
          select from pg_catalog.pg_attribute n
          where n.attrelid = pg_catalog.to_regclass('queues.holdfast_probe') and n.attnum = o.attnum
            and n.attname = o.attname and n.atttypid = o.atttypid and n.atttypmod = o.atttypmod
            and n.attcollation = o.attcollation));
      drop view queues.holdfast_probe;
    exception when undefined_table or undefined_column then
      -- It reads another view that is still to come or to change.
      _stale := true;
    end;
  end loop;

  perform pg_catalog.set_config('holdfast.drop_views', _stale::text, true);
end
$$;


-- install/drop_stale_views.sql
-- Drops all views, and the functions that return their rows, if one of them is in the way: all of them come again.
-- Never with cascade, so that a view which somebody has built on ours stops the migration instead of vanishing.
do $$
declare
  _dropped text;
begin
  if not pg_catalog.current_setting('holdfast.drop_views')::boolean then
    return;
  end if;

  for _dropped in
    select distinct d.objid::pg_catalog.regprocedure
    from pg_catalog.pg_class c
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and d.refobjid = c.reltype
    join pg_catalog.pg_proc p on d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and p.oid = d.objid
    where c.relkind = 'v'
      and c.relnamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace)
      and p.pronamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace)
  loop
    execute 'drop routine ' || _dropped;
  end loop;

  select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ') into _dropped
  from pg_catalog.pg_class c
  where c.relkind = 'v' and c.relnamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace);
  if _dropped is not null then
    execute 'drop view ' || _dropped;
  end if;
end
$$;


-- views/queue_act.sql
-- What people did to queues.
create or replace view queues.queue_act with (security_barrier) as
select a.act_id, a.queue, a.act, a.occurred_at, a.actor, a.reason
from queues.act a where a.queue is not null;

comment on view queues.queue_act is 'What people did to queues, and why.';


-- views/queue_status.sql
-- What waits and what runs, per queue.
create or replace view queues.queue_status with (security_barrier) as
select q.queue,
  coalesce(waiting.due, 0) as due, coalesce(waiting.scheduled, 0) as scheduled, coalesce(held.running, 0) as running,
  waiting.oldest_due, p.paused_at, p.paused_by, p.reason as pause_reason,
  (select pg_catalog.count(*) from queues.worker w
   where (q.queue = any (w.queues) or exists (
       select from queues.lane l, pg_catalog.unnest(w.type_prefixes) prefix
       where l.queue = q.queue and pg_catalog.starts_with(l.type, prefix)))
     and w.last_heartbeat > queues.clock() - (
       select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds')) as live_workers
from (select l.queue from queues.lane l union select p.queue from queues.paused_queue p) q
left join lateral (
  select pg_catalog.count(*) filter (where r.run_at <= now.now) as due,
    pg_catalog.count(*) filter (where r.run_at > now.now) as scheduled,
    pg_catalog.min(r.run_at) filter (where r.run_at <= now.now) as oldest_due
  from (select queues.clock() as now offset 0) now
  cross join queues.lane l join queues.ready r on r.lane_id = l.lane_id where l.queue = q.queue) waiting on true
left join lateral (
  select pg_catalog.count(*) as running
  from queues.lane l join queues.lease le on le.lane_id = l.lane_id where l.queue = q.queue) held on true
left join queues.paused_queue p on p.queue = q.queue;

comment on view queues.queue_status is 'What waits and what runs, per queue.';


-- views/task_error.sql
-- Every attempt that went wrong.
create or replace view queues.task_error with (security_barrier) as
select e.error_id, e.task_id, e.attempt, e.kind, e.message, e.detail, e.worker_id, e.recovered, e.claimed_at, e.started_at,
  e.occurred_at, e.retry_at
from queues.error e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.enqueued_by = session_user);

comment on view queues.task_error is 'Every attempt that went wrong.';


-- views/task_event.sql
-- The life of a task, derived from the facts: the ordinary course writes nothing extra. Rank puts what happened at one instant
-- in the order in which it must have happened.
create or replace view queues.task_event with (security_barrier) as
select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data
from (
  select t.task_id, 'created' as event_type, t.created_at as occurred_at, null::integer as attempt, null::text as worker_id,
    t.enqueued_by as actor, null::text as reason, pg_catalog.jsonb_build_object('run_at', t.run_at) as data, 0 as rank
  from queues.task t

  union all
  select l.task_id, v.event_type, v.occurred_at, l.attempt, l.worker_id, null, null, null, v.rank
  from queues.lease l
  cross join lateral (values ('claimed', l.claimed_at, 2), ('started', l.started_at, 3)) v(event_type, occurred_at, rank)
  where v.occurred_at is not null

  union all
  select o.task_id, v.event_type, v.occurred_at, o.attempt, o.worker_id, null,
    case when v.rank > 3 then o.reason end, null, v.rank
  from (
    select o.task_id, o.status, o.claimed_at, o.started_at, o.finished_at, o.attempt, o.worker_id, o.reason from queues.outcome o
    union all
    -- A retry takes the outcome away: how the task had ended is kept with the act.
    select a.task_id, a.data ->> 'status', (a.data ->> 'claimed_at')::timestamptz, (a.data ->> 'started_at')::timestamptz,
      (a.data ->> 'finished_at')::timestamptz, a.attempt, a.worker_id, a.data ->> 'reason'
    from queues.act a where a.act = 'retried') o
  cross join lateral (values ('claimed', o.claimed_at, 2), ('started', o.started_at, 3), (o.status, o.finished_at, 6))
    v(event_type, occurred_at, rank)
  where v.occurred_at is not null
    -- An act of a person tells of the cancelling itself, and an error of the attempt that it ended.
    and not (o.status = 'cancelled' and v.rank = 6 and exists (
      select from queues.act a where a.task_id = o.task_id and a.act = 'cancelled' and a.occurred_at = o.finished_at))
    and not (v.rank < 6 and exists (
      select from queues.error e where e.task_id = o.task_id and e.claimed_at = o.claimed_at))

  union all
  select e.task_id, v.event_type, v.occurred_at, e.attempt, e.worker_id, null, v.reason, v.data, v.rank
  from queues.error e
  cross join lateral (values
    ('claimed', e.claimed_at, null::text, null::jsonb, 2),
    ('started', e.started_at, null, null, 3),
    (case when e.recovered then 'recovered' else 'failed' end, e.occurred_at, e.message,
      pg_catalog.jsonb_build_object('kind', e.kind), 4),
    ('retried', case when e.retry_at is not null and not e.recovered then e.occurred_at end, null,
      pg_catalog.jsonb_build_object('run_at', e.retry_at), 5)) v(event_type, occurred_at, reason, data, rank)
  where v.occurred_at is not null
    and not (v.event_type = 'failed' and (
      exists (select from queues.outcome o
        where o.task_id = e.task_id and o.status = 'failed' and o.finished_at = e.occurred_at)
      or exists (select from queues.act a
        where a.task_id = e.task_id and a.act = 'retried' and a.data ->> 'status' = 'failed'
          and (a.data ->> 'finished_at')::timestamptz = e.occurred_at)))

  union all
  select a.task_id, v.event_type, v.occurred_at, a.attempt, a.worker_id,
    case when v.rank = 7 then a.actor end, case when v.rank = 7 then a.reason end, case when v.rank = 7 then a.data end, v.rank
  from queues.act a
  cross join lateral (values
    ('claimed', case when a.act in ('released', 'snoozed') then (a.data ->> 'claimed_at')::timestamptz end, 2),
    ('started', case when a.act in ('released', 'snoozed') then (a.data ->> 'started_at')::timestamptz end, 3),
    (a.act, a.occurred_at, 7)) v(event_type, occurred_at, rank)
  where a.task_id is not null and v.occurred_at is not null
) e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.enqueued_by = session_user)
order by e.task_id, e.occurred_at, e.rank;

comment on view queues.task_event is
  'The life of a task in order, derived from the facts, with actor and reason where a person acted.';


-- views/task_status.sql
-- Where every task stands, derived. A session that may not read all tasks sees those it enqueued itself.
create or replace view queues.task_status with (security_barrier) as
select
  t.task_id, t.type, t.queue, t.executor,
  queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), queues.clock()) as status,
  t.priority, t.payload, o.result, e.error, e.message as last_error, t.idempotency_key,
  pg_catalog.encode(t.spec_hash, 'hex') as spec_hash,
  coalesce(o.attempt, l.attempt, r.attempt, d.parked_attempt) as attempt, t.max_attempts,
  coalesce(r.run_at, l.run_at, d.parked_run_at, t.run_at) as run_at,
  coalesce(o.worker_id, l.worker_id) as worker_id, l.lease_until, t.created_at,
  coalesce(o.claimed_at, l.claimed_at) as claimed_at, coalesce(o.started_at, l.started_at) as started_at, o.finished_at,
  greatest(t.created_at, o.finished_at, l.claimed_at, l.started_at, d.deleted_at, e.occurred_at, a.occurred_at) as updated_at,
  d.deleted_at, d.reason as delete_reason,
  o.reason, l.progress, t.timeout, t.lease, t.metadata, t.enqueued_by
from queues.task t
left join queues.ready r on r.task_id = t.task_id
left join queues.lease l on l.task_id = t.task_id
left join queues.outcome o on o.task_id = t.task_id
left join queues.deletion d on d.task_id = t.task_id
left join lateral (
  select e.message, e.occurred_at, pg_catalog.jsonb_build_object('kind', e.kind, 'message', e.message, 'attempt', e.attempt,
    'occurred_at', e.occurred_at, 'worker_id', e.worker_id, 'detail', e.detail) as error
  from queues.error e where e.task_id = t.task_id order by e.error_id desc limit 1) e on true
left join lateral (
  select a.occurred_at from queues.act a where a.task_id = t.task_id order by a.act_id desc limit 1) a on true
where (select queues.may_read_all()) or t.enqueued_by = session_user;

comment on view queues.task_status is
  'Where every task stands. A session that may not read all tasks sees those it enqueued itself.';


-- views/worker_status.sql
-- The fleet: who works, on what, and who leads.
create or replace view queues.worker_status with (security_barrier) as
select w.worker_id, w.hostname, w.pid, w.version, w.queues, w.type_prefixes, w.concurrency, w.in_flight, w.idle,
  w.started_at, w.last_heartbeat,
  w.last_heartbeat > queues.clock() - (
    select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds') as live,
  coalesce(l.leader_until > queues.clock(), false) as leader, l.term, l.leader_until
from queues.worker w
left join queues.leadership l on l.worker_id = w.worker_id;

comment on view queues.worker_status is 'The fleet: who works, on what, and who leads.';


-- functions/listing/list_tasks.sql
-- One page of tasks, newest first: those that match every filter given and come before the task_id given. Starts from the table or index
-- that the filters select, so that a rare status is found without reading the common ones.
-- For holdfast_reader, and holdfast_client for its own tasks. Locks: none.
create or replace function queues.list_tasks(
  status text default null,
  queue text default null,
  type_prefix text default null,
  since timestamptz default null,
  before uuid default null,
  max_tasks integer default 50)
returns setof queues.task_status
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _all constant boolean := queues.may_read_all();
  _before constant uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  _ids uuid[];
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  elsif status not in ('scheduled', 'pending', 'retrying', 'claimed', 'running', 'succeeded', 'failed', 'dead_letter', 'cancelled') then
    raise exception using errcode = 'QF400', message = format('status %s is unknown', to_json(status)),
      hint = 'Known are: scheduled, pending, retrying, claimed, running, succeeded, failed, dead_letter, cancelled.';
  end if;

  if status in ('scheduled', 'pending', 'retrying') then
    _ids := array(
      select r.task_id from queues.ready r
      cross join lateral (select * from queues.task t where t.task_id = r.task_id offset 0) t
      where r.task_id < _before and queues.status_of(null, null, null, r.attempt, r.run_at, _now) = list_tasks.status
        and queues.matches(t, list_tasks.queue, type_prefix, since, _all)
      order by r.task_id desc limit max_tasks);
  elsif status in ('claimed', 'running') then
    _ids := array(
      select l.task_id from queues.lease l
      cross join lateral (select * from queues.task t where t.task_id = l.task_id offset 0) t
      where l.task_id < _before and (l.started_at is not null) = (list_tasks.status = 'running')
        and queues.matches(t, list_tasks.queue, type_prefix, since, _all)
      order by l.task_id desc limit max_tasks);
  elsif status in ('failed', 'dead_letter', 'cancelled') then
    _ids := array(
      select o.task_id from queues.outcome o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where o.status = list_tasks.status and o.status <> 'succeeded' and o.task_id < _before
        and queues.matches(t, list_tasks.queue, type_prefix, since, _all)
      order by o.task_id desc limit max_tasks);
  elsif type_prefix is not null then
    _ids := array(
      select found.task_id
      from (select distinct l.type from queues.lane l where starts_with(l.type, type_prefix)) known
      cross join lateral (
        select t.task_id from queues.task t
        where t.type = known.type and t.task_id < _before
          and queues.matches(t, list_tasks.queue, type_prefix, since, _all)
          -- Not exists, which the planner may turn into reading the whole table once.
          and (list_tasks.status is null or (
            select true from queues.outcome o where o.task_id = t.task_id and o.status = list_tasks.status limit 1))
        order by t.task_id desc limit max_tasks) found
      order by found.task_id desc limit max_tasks);
  elsif status is not null then
    _ids := array(
      select o.task_id from queues.outcome o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where o.status = list_tasks.status and o.task_id < _before
        and queues.matches(t, list_tasks.queue, null, since, _all)
      order by o.task_id desc limit max_tasks);
  else
    _ids := array(
      select t.task_id from queues.task t
      where t.task_id < _before and queues.matches(t, list_tasks.queue, null, since, _all)
      order by t.task_id desc limit max_tasks);
  end if;
  return query select s.* from queues.task_status s where s.task_id = any (_ids) order by s.task_id desc;
end
$$;

comment on function queues.list_tasks(text, text, text, timestamptz, uuid, integer) is
  'One page of tasks, newest first: those that match every filter given and come before the task_id given.';


-- grants.sql
-- Everything a role may do. Nobody has a right on a table; what is not granted here is the owner's alone.

-- What an older release granted is taken back first. Only where there is something: a revoke writes to the catalog.
do $$
declare
  _granted record;
begin
  for _granted in
    select distinct held.kind, held.name, case held.grantee when 0 then 'public' else held.grantee::pg_catalog.regrole::text end as grantee
    from (
      select 'schema' as kind, n.oid::pg_catalog.regnamespace::text as name, a.grantee
      from pg_catalog.pg_namespace n cross join lateral pg_catalog.aclexplode(n.nspacl) a
      where n.nspname in ('queues', 'internal')
      union all
      select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::pg_catalog.regclass::text, a.grantee
      from pg_catalog.pg_class c cross join lateral pg_catalog.aclexplode(c.relacl) a
      where c.relnamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace)
      union all
      select 'routine', p.oid::pg_catalog.regprocedure::text, a.grantee
      from pg_catalog.pg_proc p cross join lateral pg_catalog.aclexplode(p.proacl) a
      where p.pronamespace in ('queues'::pg_catalog.regnamespace, 'internal'::pg_catalog.regnamespace)
    ) held
    where held.grantee = 0 or held.grantee in (
      select r.oid from pg_catalog.pg_roles r
      where r.rolname in ('holdfast_client', 'holdfast_process', 'holdfast_worker', 'holdfast_dispatcher',
        'holdfast_operator', 'holdfast_reader'))
  loop
    execute pg_catalog.format('revoke all on %s %s from %s', _granted.kind, _granted.name, _granted.grantee);
  end loop;
end
$$;

grant usage on schema queues to
  holdfast_client, holdfast_process, holdfast_worker, holdfast_dispatcher, holdfast_operator, holdfast_reader;
grant usage on schema internal to holdfast_worker;

grant execute on function
  queues.enqueue, queues.enqueue_many, queues.enqueue_for_client, queues.enqueue_one_for_client,
  queues.cancel, queues.reschedule, queues.explain, queues.list_tasks, queues.watch
to holdfast_client;
grant execute on function queues.enqueue_for_process, queues.enqueue_one_for_process to holdfast_process;

grant execute on function
  queues.claim, queues.next_due, queues.dequeue_next_available_task, queues.heartbeat, queues.finish, queues.release, queues.sweep,
  queues.register_worker, queues.retire_worker, queues.mark_idle, queues.lead, queues.explain
to holdfast_worker;
grant execute on function internal.run_function to holdfast_worker;

grant execute on function
  queues.cancel, queues.retry, queues.delete_task, queues.restore_task, queues.reschedule, queues.pause, queues.resume, queues.sweep
to holdfast_operator;

grant execute on function queues.explain, queues.list_tasks, queues.watch to holdfast_reader;
grant execute on function queues.may_read_all, queues.clock, queues.status_of to holdfast_reader, holdfast_client, holdfast_worker;
grant select on
  queues.task_status, queues.task_event, queues.task_error, queues.queue_status, queues.worker_status, queues.queue_act
to holdfast_reader;
grant select on queues.task_status, queues.task_event, queues.task_error to holdfast_client;


-- install/record.sql
insert into queues.installation (version, installed_at, release, digest)
values (
  pg_catalog.current_setting('holdfast.version')::integer, queues.clock(),
  pg_catalog.current_setting('holdfast.release'), pg_catalog.current_setting('holdfast.digest'))
on conflict (version) do update set
  installed_at = excluded.installed_at, release = excluded.release, digest = excluded.digest;

\endif
commit;
\echo :holdfast_done
