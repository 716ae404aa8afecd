-- Removes a policy, so that the one of the next shorter prefix decides, and everything is kept if there is none. Answers whether there was one.
-- For holdfast_operator. Locks: the policy's row.
create or replace function queues.drop_retention(status text, type_prefix text default '')
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_retention(status);
  delete from queues.retention r
  where r.status = drop_retention.status and r.type_prefix = drop_retention.type_prefix;
  return found;
end
$$;

comment on function queues.drop_retention(text, text) is
  'Removes a policy, so that the one of the next shorter prefix decides, and everything is kept if there is none.';
