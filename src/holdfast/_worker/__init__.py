"""The worker: claims tasks, runs their handlers and reports how they ended."""
