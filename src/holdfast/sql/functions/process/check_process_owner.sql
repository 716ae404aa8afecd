-- Refuses a caller that is neither the owner of a process nor a member of that role. The caller is the role that the
-- session has set, or its login: a function with its owner's rights sees no other, and a session can only set roles of
-- which it is a member. A function of a process would be asked about the role of its caller, so it is refused.
-- Internal.
create or replace function queues.check_process_owner(process text, owner oid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _caller constant name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
  if (internal.current_call()).namespace is not null then
    raise exception using errcode = 'QF403',
      message = format('a function of a process may not register the process %s', process);
  elsif not pg_has_role(_caller, owner, 'member') then
    raise exception using errcode = 'QF403',
      message = format('%I may not register the process %s, which belongs to %s', _caller, process, owner::regrole),
      hint = format('Call it as its owner: set role %s', owner::regrole);
  end if;
end
$$;

comment on function queues.check_process_owner(text, oid) is
  'Refuses a caller that is neither the owner of a process nor a member of that role.';
