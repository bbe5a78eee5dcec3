"""The command line. ``main`` runs one call of it and returns the exit code."""

from perdure.interfaces.cli.program import main

__all__ = ["main"]
