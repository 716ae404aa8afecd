    decision in ('started', 'attempt', 'succeeded', 'failed', 'gave_up', 'cancelled')),
