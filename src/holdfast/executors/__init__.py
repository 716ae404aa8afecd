"""What runs a task outside the worker's own process. It knows nothing of the engine, only of runs."""
