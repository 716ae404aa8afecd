-- A task that is restored finds its lane again by what it is: the one that it came from may have been tidied away.
alter table queues.deletion drop constraint parked_whole_or_not_at_all;
alter table queues.deletion drop column parked_lane_id;
alter table queues.deletion add constraint parked_whole_or_not_at_all check ((parked_run_at is null) = (parked_attempt is null));
