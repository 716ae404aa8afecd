  perform @name@.wake_@name@_supervisor(_id, _attempt);
