"""What a process tells of itself: logs, spans, the task that it runs, and its supervisor."""
