

comment on schema queues is 'Holdfast: the engine. Every change of state is a function here.';
comment on schema internal is 'Holdfast: the function runner.';
comment on schema comms is 'Holdfast: e-mail and text messages, the first business process built on the engine.';

-- Only the global form works: a global default of PUBLIC cannot be revoked per schema.
alter default privileges for role holdfast_owner revoke execute on functions from public;
alter default privileges for role holdfast_owner revoke usage on types from public;
