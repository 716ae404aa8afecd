-- Holdfast's own processes, which must be granted before they can be registered.
do $$
declare
  _stem text;
begin
  foreach _stem in array array['send_email', 'send_sms'] loop
    perform queues.register_process('comms.' || _stem, 'send_task', pg_catalog.format('comms.%s_supervisor', _stem),
      'comms.repair_' || _stem, pg_catalog.format('comms.cancel_%s_task', _stem),
      pg_catalog.format('comms.%s_history', _stem));
  end loop;
end
$$;
