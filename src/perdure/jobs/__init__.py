"""Many items, each exactly once: the job directory, its log, and the loop over it."""
