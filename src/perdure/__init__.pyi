# What type checkers read instead of the lazy __init__.py; tests/tidy compares the two.
from perdure.control.supervisor import Supervisor as Supervisor
from perdure.core.model import Artifact as Artifact
from perdure.core.model import Budget as Budget
from perdure.core.model import Criterion as Criterion
from perdure.core.model import Integrity as Integrity
from perdure.core.model import Node as Node
from perdure.core.model import Policies as Policies
from perdure.core.model import Spec as Spec
from perdure.core.model import State as State
from perdure.core.people import Question as Question
from perdure.errors import BusyError as BusyError
from perdure.errors import CardError as CardError
from perdure.errors import CheckFailedError as CheckFailedError
from perdure.errors import CorruptError as CorruptError
from perdure.errors import EvidenceError as EvidenceError
from perdure.errors import FencedError as FencedError
from perdure.errors import HaltError as HaltError
from perdure.errors import LeaseHeldError as LeaseHeldError
from perdure.errors import NotFoundError as NotFoundError
from perdure.errors import PathError as PathError
from perdure.errors import RefusedError as RefusedError
from perdure.errors import StorageError as StorageError
from perdure.errors import TaskFileError as TaskFileError
from perdure.errors import TransitionError as TransitionError
from perdure.errors import UsageError as UsageError
from perdure.jobs.job import CheckpointedJob as CheckpointedJob
from perdure.jobs.lines import item_hash as item_hash
from perdure.runtime.halt import HaltRuntime as HaltRuntime

__version__: str
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
