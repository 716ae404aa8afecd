  perform queues.nudge(@name@.waiting_@name@_supervisor(_id));
