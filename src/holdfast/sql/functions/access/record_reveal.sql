-- Records that the hidden values of a task were shown to somebody, before they are. For holdfast_operator. Locks: none.
create or replace function queues.record_reveal(task_id uuid, reason text default null, address text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.own_task(task_id);
  insert into queues.access_act (act, occurred_at, actor, task_id, address, reason)
  values ('revealed', queues.clock(), queues.actor(), task_id, left(address, 200), left(reason, 2000));
end
$$;

comment on function queues.record_reveal(uuid, text, text) is
  'Records that the hidden values of a task were shown to somebody, before they are.';
