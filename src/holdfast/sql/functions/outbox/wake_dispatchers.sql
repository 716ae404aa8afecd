-- Tells idle dispatchers that there is something to send, and nobody if none is idle. A hint only: who misses it polls.
create or replace function queues.wake_dispatchers()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queues.dispatcher d where d.idle) then
    perform pg_notify('holdfast_outbox', '');
  end if;
end
$$;

comment on function queues.wake_dispatchers() is 'Tells idle dispatchers that there is something to send, and nobody if none is idle.';
