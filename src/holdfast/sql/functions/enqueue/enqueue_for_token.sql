-- Enqueues a batch in the namespace of an access token. For a server that acts for the holders of many tokens. The hash
-- proves that the token was presented: no role can read it. As in enqueue_for_client, only executors that act with the
-- rights of the worker are allowed.
-- For holdfast_client. Locks: the keys.
create or replace function queues.enqueue_for_token(token_hash bytea, tasks jsonb)
returns table (task_id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace text;
begin
  select t.namespace into _namespace from queues.access_token t
  where t.token_hash = enqueue_for_token.token_hash and t.scopes && array['enqueue', 'admin']
    and t.revoked_at is null and t.expires_at > queues.clock();
  if not found then
    raise exception using errcode = 'QF403',
      message = 'this access token may not enqueue: it is unknown, expired or revoked, or it lacks the scope enqueue',
      hint = 'holdfast tokens create NAME --scope enqueue';
  end if;
  return query
  select i.task_id, i.created from queues.insert_tasks(tasks, for_process => false, namespace => _namespace) i;
end
$$;

comment on function queues.enqueue_for_token(bytea, jsonb) is 'Enqueues a batch in the namespace of an access token.';
