-- Sets how long tasks with this status and type prefix are kept; null means forever. The status deleted means
-- soft-deleted tasks. If several prefixes match, the longest one applies. The status history means records of queues
-- and lost workers, messages means the content of e-mail and text messages; these have no types. The status steps
-- means what runs remember, counted from their end.
-- For holdfast_operator. Locks: the policy's row, then the mark of the status.
create or replace function queues.set_retention(status text, keep interval, type_prefix text default '')
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_retention(status);
  if type_prefix is null or length(type_prefix) > 200 or status in ('history', 'messages') and type_prefix <> '' then
    raise exception using errcode = 'QF400', message = case
      when status in ('history', 'messages') then format('%s has no types, and so no type_prefix', status)
      else 'type_prefix must be text of at most 200 characters' end;
  elsif keep not between interval '1 minute' and interval '1000 years' then
    raise exception using errcode = 'QF400', message = 'keep must be at least 1 minute',
      hint = 'Repeated reports and waiting clients must still find the task. Null keeps it forever.';
  end if;
  insert into queues.retention as r (status, type_prefix, keep, changed_at, changed_by)
  values (status, type_prefix, keep, queues.clock(), session_user)
  on conflict (status, type_prefix) do update
  set keep = excluded.keep, changed_at = excluded.changed_at, changed_by = excluded.changed_by;
  -- What was kept under the former policies is looked at again.
  update queues.retention_mark m set past = '00000000-0000-0000-0000-000000000000'
  where m.status = set_retention.status;
end
$$;

comment on function queues.set_retention(text, interval, text) is
  'Sets how long tasks with this status and type prefix are kept; null means forever.';
