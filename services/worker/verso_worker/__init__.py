"""The worker: rules and stores in one process, models and the vector shard in child processes."""
