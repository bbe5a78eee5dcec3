"""The way back from a result, for the interfaces.

Job: find the workspace that a reference belongs to, and ask it. Invariants: writes nothing.
"""

from typing import Any, Final

from perdure.core.late import LateModule
from perdure.core.provenance_walk import count_steps
from perdure.runtime.engine import Engine
from perdure.runtime.provenance import why
from perdure.service.tasks import Service

_instance_tree: Final = LateModule("perdure.service.instance_tree")


def why_of(service: Service, ref: str, *, depth: int, view: str = "summary") -> dict[str, Any]:
    """The tree below ``ref``; ``INSTANCE#ID`` is of an instance below (NS-2)."""
    engine = Engine(service.workspace, service.world, service.actor)
    engine.load()
    instance, _, name = ref.rpartition("#")
    if instance:
        directory: str = _instance_tree.instance_named(engine, instance)
        engine = Engine(directory, service.world, service.actor)
        engine.load()
    found = why(engine, name, depth=depth, view=view)
    return {**found, "steps": count_steps(found["why"])}
