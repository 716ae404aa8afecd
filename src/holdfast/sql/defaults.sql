comment on schema queues is 'Holdfast: the engine. Every change of state is a function here.';
comment on schema internal is 'Holdfast: the function runner.';

-- Only the global form works: a global default of PUBLIC cannot be revoked per schema. A single login keeps its
-- defaults, because they also apply to what it creates in other schemas.
do $$
begin
  if pg_catalog.current_setting('holdfast.owner') = 'holdfast_owner' then
    alter default privileges for role holdfast_owner revoke execute on functions from public;
    alter default privileges for role holdfast_owner revoke usage on types from public;
  end if;
end
$$;
