-- Everything a role may do. Nobody has a right on a table; what is not granted here is the owner's alone.

revoke all on schema queues, internal from public;
grant usage on schema queues to
  holdfast_client, holdfast_process, holdfast_worker, holdfast_dispatcher, holdfast_operator, holdfast_reader;
grant usage on schema internal to holdfast_worker;

grant execute on function
  queues.enqueue, queues.enqueue_many, queues.enqueue_for_client,
  queues.cancel, queues.reschedule, queues.explain, queues.list_tasks
to holdfast_client;
grant execute on function queues.enqueue_for_process to holdfast_process;

grant execute on function
  queues.claim, queues.dequeue_next_available_task, queues.heartbeat, queues.finish, queues.release, queues.sweep,
  queues.register_worker, queues.retire_worker, queues.mark_idle, queues.lead, queues.explain
to holdfast_worker;
grant execute on function internal.run_function to holdfast_worker;

grant execute on function
  queues.cancel, queues.retry, queues.delete_task, queues.restore_task, queues.reschedule, queues.pause, queues.resume, queues.sweep
to holdfast_operator;

grant execute on function queues.explain, queues.list_tasks to holdfast_reader;
grant execute on function queues.may_read_all, queues.clock, queues.status_of to holdfast_reader, holdfast_client, holdfast_worker;
grant select on
  queues.task_status, queues.task_event, queues.task_error, queues.queue_status, queues.worker_status, queues.queue_act
to holdfast_reader;
grant select on queues.task_status, queues.task_event, queues.task_error to holdfast_client;
