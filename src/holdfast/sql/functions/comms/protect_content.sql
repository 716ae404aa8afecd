-- Trigger function that protects the content of messages: no updates, and deletes only after a recorded erasure.
create or replace function comms.protect_content()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and exists (select from comms.message_erased e where e.message_id = old.message_id) then
    return old;
  end if;
  raise exception using errcode = 'QF412',
    message = format('%I.%I is kept as it is: %s is refused', tg_table_schema, tg_table_name, lower(tg_op)),
    hint = 'comms.erase_messages removes the content of messages, and records it.';
end
$$;

comment on function comms.protect_content() is
  'Trigger function that protects the content of messages: no updates, and deletes only after a recorded erasure.';

do $install$
begin
  if not exists (
    select from pg_catalog.pg_trigger t
    where t.tgrelid = 'comms.message_content'::pg_catalog.regclass and t.tgname = 'kept_as_it_is')
  then
    create trigger kept_as_it_is before update or truncate on comms.message_content
      for each statement execute function comms.protect_content();
    create trigger erased_on_record before delete on comms.message_content
      for each row execute function comms.protect_content();
    -- Also where triggers are disabled, as in a session that restores a dump or applies a replica's changes.
    alter table comms.message_content
      enable always trigger kept_as_it_is, enable always trigger erased_on_record;
  end if;
end
$install$;
