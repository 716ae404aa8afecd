-- Deletes the content of messages, records each erasure, and returns how many had content.
-- Internal: called by erase_messages and prune_messages, which have locked the content.
create or replace function comms.remove_content(message_ids bigint[], erased_by text, reason text, now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _removed integer;
begin
  insert into comms.message_erased (message_id, erased_at, erased_by, reason)
  select m.message_id, now, erased_by, reason from unnest(message_ids) m(message_id)
  on conflict do nothing;
  get diagnostics _removed = row_count;
  delete from comms.message_content c where c.message_id = any (message_ids);
  return _removed;
end
$$;

comment on function comms.remove_content(bigint[], text, text, timestamptz) is
  'Deletes the content of messages, records each erasure, and returns how many had content.';
