-- Checks that the roles include each other, without which a login lacks rights that it was meant to have.
-- Internal: called by health.
create or replace function queues.health_of_roles()
returns setof queues.health_line
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'missing_grant', 'red', m.member, null::double precision,
    format('members of %s lack the rights of %s', m.member, m.role), format('Have a DBA run: grant %I to %I;', m.role,
      m.member), null
  from unnest(
    array['holdfast_client', 'holdfast_reader', 'holdfast_process', 'holdfast_worker', 'holdfast_dispatcher',
      'holdfast_operator'],
    array['holdfast_process', 'holdfast_operator', 'holdfast_owner', 'holdfast_owner', 'holdfast_owner',
      'holdfast_owner']) m(role, member)
  join pg_namespace n on n.nspname = 'queues' and n.nspowner = to_regrole('holdfast_owner')
  where not coalesce(pg_has_role(to_regrole(m.member), to_regrole(m.role), 'usage'), false)
$$;

comment on function queues.health_of_roles() is
  'Checks that the roles include each other, without which a login lacks rights that it was meant to have.';
