-- The HTTP server. Its login is a member of holdfast_operator, and of holdfast_client if it enqueues tasks.
grant execute on function
  queues.create_token, queues.renew_token, queues.revoke_token, queues.check_token, queues.open_session,
  queues.check_session, queues.close_session, queues.record_reveal
to holdfast_operator;
grant execute on function queues.enqueue_for_token to holdfast_client;
grant select on queues.access_token_status to holdfast_operator;
