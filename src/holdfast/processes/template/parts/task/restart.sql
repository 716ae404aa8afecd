      perform @name@.start_@name@_supervisor(_id, queues.clock(), 'the run before it was lost');
