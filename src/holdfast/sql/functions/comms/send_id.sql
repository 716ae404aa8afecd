-- Returns the id of a send in the payload of its tasks, or null: the field send_email_task_id or send_sms_task_id.
-- Internal.
create or replace function comms.send_id(channel text, payload jsonb)
returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when payload ->> f.name ~ '^[0-9]{1,18}$' then (payload ->> f.name)::bigint end
  from (select 'send_' || channel || '_task_id' as name) f
$$;

comment on function comms.send_id(text, jsonb) is 'Returns the id of a send in the payload of its tasks, or null.';
