    decision in ('sleep', 'attempt', 'wait', 'succeeded', 'failed', 'gave_up', 'cancelled')),
