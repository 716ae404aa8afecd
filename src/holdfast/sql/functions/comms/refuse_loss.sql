-- Trigger function that protects the content of messages: no updates, and deletes only after a recorded erasure.
create or replace function comms.refuse_loss()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and exists (select from comms.message_erased e where e.message_id = old.message_id) then
    return old;
  end if;
  raise exception using errcode = 'QF412', message = format('%I.%I is kept as it is: %s is refused', tg_table_schema, tg_table_name, lower(tg_op)),
    hint = 'comms.erase_messages removes the content of messages, and records it.';
end
$$;

comment on function comms.refuse_loss() is
  'Trigger function that protects the content of messages: no updates, and deletes only after a recorded erasure.';

do $install$
declare
  _table text;
begin
  for _table in
    select c.relname from pg_catalog.pg_class c
    where c.relnamespace = 'comms'::pg_catalog.regnamespace and c.relname in ('email_message', 'sms_message')
      and not exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and t.tgname = 'kept_as_it_is')
  loop
    execute pg_catalog.format('create trigger kept_as_it_is before update or truncate on comms.%I '
      'for each statement execute function comms.refuse_loss()', _table);
    execute pg_catalog.format('create trigger erased_on_record before delete on comms.%I '
      'for each row execute function comms.refuse_loss()', _table);
    -- Also where triggers are disabled, as in a session that restores a dump or applies a replica's changes.
    execute pg_catalog.format('alter table comms.%I enable always trigger kept_as_it_is', _table);
    execute pg_catalog.format('alter table comms.%I enable always trigger erased_on_record', _table);
  end loop;
end
$install$;
