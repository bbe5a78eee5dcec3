"""Modules that are imported when they are first used.

Job: keep the start of a short command short: agents make one at every step. The one mechanism for
it; where it is used the module's full name stands at the top of the file, like any other import.
Invariants: the named module is on the same layer or below (tests/tidy/test_late_imports.py).
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class LateModule:
    """Stands for a module: ``inspection.verify_workspace(engine)`` imports it at the first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        module = self._module
        if module is None:  # asking the import system each time would cost a commit 1 us
            module = self._module = import_module(self.name)
        return getattr(module, attribute)
