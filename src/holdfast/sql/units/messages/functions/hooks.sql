-- What core asks of messages and processes. In a database without them, absent/functions/hooks.sql has the same
-- functions, which find nothing. Two more are where they belong: prune_messages and call_error_handlers.
-- Invariant: core calls these functions, and names no other function and no table of this unit.
-- Lock order: none. Those that look only read, in the snapshot of the caller's statement.
-- At the same time: everything may change while they look; each answer describes one moment.

-- Checks business processes that are stuck: without a supervisor, or with one that fails. Counts up to 1,000 per
-- process and kind of problem.
-- Internal: called by health.
create or replace function queues.health_of_processes(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select t.code, queues.level_of(t.seconds, 0, case t.code when 'orphaned_process' then 60 else 600 end), t.process,
    t.seconds, t.code, jsonb_build_object('instances', t.instances, 'counted_to', 1000, 'process_id', t.process_id),
    left(t.message, 200)
  from (
    select case w.trouble when 'orphaned' then 'orphaned_process' else 'failing_supervisor' end as code, p.process,
      found.instances, found.process_id, extract(epoch from now - found.since)::double precision as seconds, (
        select e.message from queues.error e where e.task_id = found.task_id order by e.error_id desc
          limit 1) as message
    from queues.process p
    cross join (values ('orphaned'), ('failing')) w(trouble)
    cross join lateral (
      select count(*) as instances, min(i.troubled_at) as since,
        (array_agg(i.process_id order by i.troubled_at))[1] as process_id,
        (array_agg(i.task_id order by i.troubled_at))[1] as task_id
      from (
        select i.process_id, i.troubled_at, i.task_id from queues.process_instance i
        where i.process = p.process and i.trouble is not null and i.trouble = w.trouble limit 1000) i) found
    where found.instances > 0) t
  order by t.seconds desc limit 100;
end
$$;

-- Returns whether the mailbox has a message with this id.
-- Internal: called by record_reveal.
create or replace function queues.is_in_mailbox(mailbox_message_id bigint)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from comms.mailbox_message m where m.mailbox_message_id = is_in_mailbox.mailbox_message_id)
$$;

-- Returns the namespace of the instance of a process with this wait key, or null.
-- Internal: called by internal.run_function.
create or replace function queues.namespace_of_instance(wait_key uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select i.namespace from queues.process_instance i where i.wait_key = namespace_of_instance.wait_key $$;

-- Returns the instances of processes that a task names in its payload, as the functions of the process write it, with
-- their status. Anybody who enqueues may write anything there.
-- Internal: called by related_to.
create or replace function queues.processes_named(type text, payload jsonb)
returns table (process text, process_id bigint, status text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select i.process, i.process_id, i.status
  from queues.process p
  cross join lateral (
    select processes_named.payload ->> f.field as number
    from (values (p.root_table || '_id'), (regexp_replace(p.process, '^.*\.', '') || '_task_id')) f(field)
    where processes_named.payload ->> f.field ~ '^[0-9]{1,18}$' limit 1) f
  cross join lateral (
    select i.process, i.process_id, i.status from queues.process_status i
    where i.process = p.process and i.process_id = f.number::bigint offset 0) i
  where starts_with(processes_named.type, p.schema_name || '.')
$$;
