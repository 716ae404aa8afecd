-- Removes the content of messages that the policy for messages no longer keeps. That is, all their sends ended longer
-- ago, or they were never sent. Examines a limited number, the oldest first, after the given one, and returns where to
-- continue: null at the end.
-- Internal: called by prune. Locks: contents and copies in the mailbox, without waiting.
create or replace function comms.prune_messages(
  max_messages integer, past uuid, dry_run boolean, now timestamptz, out pruned integer, out examined integer,
  out next uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _cutoff constant timestamptz := now - (select r.keep from queues.retention r where r.status = 'messages');
  -- The number of a message in place of the id of a task.
  _past constant bigint := coalesce(('x' || right(replace(past::text, '-', ''), 16))::bit(64)::bigint, 0);
  _looked bigint[];
  _old bigint[];
  _copies bigint[];
begin
  pruned := 0;
  examined := 0;
  if _cutoff is null then
    return;
  end if;
  _looked := array(
    select c.message_id from comms.message_content c where c.message_id > _past
    order by c.message_id limit max_messages);
  examined := cardinality(_looked);
  _old := array(
    select m.message_id from comms.message m where m.message_id = any (_looked) and m.created_at < _cutoff
    order by m.message_id);
  if not coalesce(dry_run, false) then
    _old := array(
      select c.message_id from comms.message_content c where c.message_id = any (_old)
      order by c.message_id for update skip locked);
  end if;
  -- A separate statement, so that it sees a send that was started before the lock was granted.
  _old := array(
    select m.message_id from unnest(_old) m(message_id)
    where not exists (
      select from comms.send_task t where t.message_id = m.message_id and not exists (
        select from comms.send_task_supervised s
        where s.send_task_id = t.send_task_id and s.next_task_id is null and s.supervised_at < _cutoff)));
  _copies := array(
    select b.mailbox_message_id from comms.mailbox_message b where b.kept_at < _cutoff
    order by b.mailbox_message_id limit max_messages for update skip locked);
  if not coalesce(dry_run, false) then
    perform comms.remove_content(_old, 'retention', 'kept no longer', now);
    delete from comms.mailbox_message b where b.mailbox_message_id = any (_copies);
    delete from comms.send_count k where (k.channel, k.scope, k.period, k.subject) in (
      select old.channel, old.scope, old.period, old.subject from comms.send_count old where old.ends_at < now
      order by old.ends_at limit max_messages for update skip locked);
  end if;
  pruned := cardinality(_old) + cardinality(_copies);
  if examined = max_messages
    and (select m.created_at from comms.message m where m.message_id = _looked[examined]) < _cutoff
  then
    next := lpad(to_hex(_looked[examined]), 32, '0')::uuid;
  end if;
end
$$;

comment on function comms.prune_messages(integer, uuid, boolean, timestamptz) is
  'Removes the content of messages that the policy for messages no longer keeps.';
