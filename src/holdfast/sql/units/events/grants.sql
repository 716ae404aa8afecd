-- The outbox. Only dispatchers can read secrets.
grant execute on function queues.emit, queues.receive to holdfast_client, holdfast_worker;
grant execute on function
  queues.dispatcher_heartbeat, queues.claim_events, queues.settle_events, queues.retire_dispatcher
to holdfast_dispatcher;
grant execute on function
  queues.subscribe, queues.unsubscribe, queues.pause_subscription, queues.resume_subscription, queues.rotate_secret,
  queues.test_subscription, queues.redrive_events
to holdfast_operator;
grant execute on function queues.prune_events, queues.prune_inbox to holdfast_worker, holdfast_operator;
grant execute on function queues.list_deliveries to holdfast_reader;
grant select on queues.subscription_event to holdfast_reader;
grant execute on function queues.tail_events to holdfast_reader, holdfast_client;
grant select on queues.outbox_status, queues.event_status, queues.delivery_status,
  queues.dispatcher_status to holdfast_reader;
grant select on queues.event_status, queues.delivery_status to holdfast_client;
