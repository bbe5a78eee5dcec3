"""Ways in: they parse, call the service and render, nothing else."""
