-- Removes a retention policy and returns whether it existed. The policy of the next shorter prefix then applies;
-- without one, everything is kept.
-- For holdfast_operator. Locks: the policy's row, then the mark of the status.
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
  if not found then
    return false;
  end if;
  update queues.retention_mark m set past = '00000000-0000-0000-0000-000000000000'
  where m.status = drop_retention.status;
  return true;
end
$$;

comment on function queues.drop_retention(text, text) is 'Removes a retention policy and returns whether it existed.';
