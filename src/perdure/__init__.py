"""The public names of perdure, each loaded when it is first used (PEP 562).

Invariants: importing ``perdure`` imports nothing else of perdure and no third-party package, so
that a command line call pays only for what it needs; ``__all__`` is every public name there is,
and ``__init__.pyi`` says the same to type checkers. Never holds logic.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "Budget",
    "BusyError",
    "CardError",
    "CheckFailedError",
    "CheckpointedJob",
    "CorruptError",
    "Criterion",
    "EvidenceError",
    "FencedError",
    "HaltError",
    "HaltRuntime",
    "Integrity",
    "LeaseHeldError",
    "Node",
    "NotFoundError",
    "PathError",
    "Policies",
    "Question",
    "RefusedError",
    "Spec",
    "State",
    "StorageError",
    "Supervisor",
    "TaskFileError",
    "TransitionError",
    "UsageError",
    "__version__",
    "item_hash",
]

_HOMES = {
    "HaltRuntime": "perdure.runtime.halt",
    "Supervisor": "perdure.control.supervisor",
    "CheckpointedJob": "perdure.jobs.job",
    "item_hash": "perdure.jobs.lines",
    "BusyError": "perdure.errors",
    "CardError": "perdure.errors",
    "CheckFailedError": "perdure.errors",
    "CorruptError": "perdure.errors",
    "EvidenceError": "perdure.errors",
    "FencedError": "perdure.errors",
    "HaltError": "perdure.errors",
    "LeaseHeldError": "perdure.errors",
    "NotFoundError": "perdure.errors",
    "PathError": "perdure.errors",
    "RefusedError": "perdure.errors",
    "StorageError": "perdure.errors",
    "TaskFileError": "perdure.errors",
    "TransitionError": "perdure.errors",
    "UsageError": "perdure.errors",
    "Artifact": "perdure.core.model",
    "Budget": "perdure.core.model",
    "Criterion": "perdure.core.model",
    "Integrity": "perdure.core.model",
    "Node": "perdure.core.model",
    "Policies": "perdure.core.model",
    "Question": "perdure.core.people",
    "Spec": "perdure.core.model",
    "State": "perdure.core.model",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(_import_module(home), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
