-- Returns the built-in sinks, the form of their targets, and their options with the accepted JSON types.
create or replace function queues.sink_options()
returns table (sink text, target text, example text, options jsonb)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  values
    ('http', '^https?://.', 'https://shop.example.com/events',
      '{"mode": "string", "headers": "object", "timeout": "number", "concurrency": "number"}'::jsonb),
    ('nats', '^(nats|tls)://.', 'tls://nats.example.com:4222',
      '{"mode": "string", "subject": "string", "stream": "string", "timeout": "number", "concurrency": "number"}'),
    ('amqp', '^amqps?://.', 'amqps://user@rabbit.example.com/vhost',
      '{"mode": "string", "exchange": "string", "routing_key": "string", "timeout": "number", "concurrency": '
        '"number"}'),
    ('file', '^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.jsonl$', 'orders.jsonl', '{"fsync": "string"}'),
    ('console', '', '-', '{}')
$$;

comment on function queues.sink_options() is
  'Returns the built-in sinks, the form of their targets, and their options with the accepted JSON types.';
