"""Driving tasks: task files, the run loop, executors."""
