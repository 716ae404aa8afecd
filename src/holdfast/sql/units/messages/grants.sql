-- Messages and business processes.
grant usage on schema comms to
  holdfast_client, holdfast_process, holdfast_worker, holdfast_operator, holdfast_reader, holdfast_caller;
grant execute on function
  queues.nudge, queues.next_check, queues.register_process, queues.record_process_files, queues.note_supervision,
  queues.ending_of, queues.orphans, queues.is_supervised
to holdfast_process;
grant execute on function queues.find_orphans, queues.processes_to_repair to holdfast_worker;
grant execute on function queues.start_process to holdfast_client;
grant execute on function queues.nudge_process, queues.cancel_process to holdfast_client, holdfast_operator;
grant execute on function queues.process_history, queues.list_processes, queues.list_process_instances
to holdfast_reader;
grant execute on function queues.prune_processes to holdfast_worker, holdfast_operator;
grant execute on function queues.watch_processes, queues.process_status_of to holdfast_client, holdfast_reader;
grant select on queues.process_status, queues.registered_process to holdfast_client, holdfast_reader;

grant execute on function
  comms.create_email_message, comms.kickoff_send_email_task, comms.create_sms_message, comms.kickoff_send_sms_task
to holdfast_client;
grant execute on function comms.cancel_send_email_task, comms.cancel_send_sms_task to holdfast_client,
  holdfast_operator, holdfast_caller;
grant execute on function
  comms.send_email_supervisor, comms.get_email_payload, comms.record_email_success, comms.record_email_failure,
  comms.send_sms_supervisor, comms.get_sms_payload, comms.record_sms_success, comms.record_sms_failure,
  comms.repair_send_email, comms.repair_send_sms
to holdfast_caller;
grant execute on function comms.reserve_send, comms.keep_message to holdfast_worker;
grant execute on function comms.clear_mailbox, comms.erase_messages, comms.record_delivery to holdfast_operator;
grant select on comms.mailbox, comms.send_cap_status to holdfast_reader;
grant select on comms.send_status, comms.send_email_status, comms.send_sms_status to holdfast_client, holdfast_reader;
grant execute on function comms.send_email_history, comms.send_sms_history to holdfast_reader, holdfast_caller;
grant select on comms.send_event to holdfast_reader, holdfast_client;
