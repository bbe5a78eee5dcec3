"""Ending a task, for the interfaces.

Job: give the archive what only this layer can look up. Invariants: those of the calls.
"""

import os
from typing import Any

from perdure.core.memory import project_scope
from perdure.runtime import calls
from perdure.runtime.engine import Engine
from perdure.service.task_audits import extras_of
from perdure.service.tasks import Service
from perdure.storage.workspace import find_project

Data = dict[str, Any]


def archive(service: Service, *, scope: str = "", op: str | None = None) -> Data:
    """Audit and archive; ``exit_code`` 1 when the audit found defects and added nodes for them."""
    engine = Engine(service.workspace, service.world, service.actor)
    engine.load()
    args = {"extras": extras_of(engine), "scope": scope or scope_of(engine)}
    try:
        return {"exit_code": 0, **calls.perform(engine, "archive", args, op=op)}
    finally:
        engine.close()


def scope_of(engine: Engine) -> str:
    """The scope of what a task has taught: its project's, by the name of its directory."""
    project = find_project(engine.disk, engine.layout.root)
    directory = os.path.dirname(project) if project is not None else engine.layout.root
    return project_scope(os.path.basename(directory))
