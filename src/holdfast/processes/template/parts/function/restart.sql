      perform queues.note_supervision('@name@', _id, queues.enqueue('@name@.@name@_supervisor', max_attempts => 25,
        payload => jsonb_build_object('task_type', 'db_function', 'db_function', '@name@.@name@_supervisor',
          '@name@_task_id', _id, 'run', @name@.count_@name@_task_runs(_id) + 1)), queues.clock());
