"""A card: one procedure with typed inputs, phases of work, and a way out for each failure.

Job: the records that a validated card is made of. Invariants: a :class:`Card` can be planned
(its phases are in order, its nodes validate with the defaults of its inputs, every failure class
has a route); it holds data and never code; equal bytes give equal cards. It reads nothing itself.
"""

from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.taskfile_tree import Place, Tree
from perdure.core.model import FAILURE_CLASSES, Effect, VerificationLevel

ROUTES: Final = (
    "retry_after_probe", "method_switch_or_escalate", "quarantine_and_replan", "block_ask_user",
    "decompose_and_report", "suspend_with_handoff_note",
)  # fmt: skip
"""The closed set of ways out of a failure."""
ROUTE_ALIASES: Final = {"ask_user": "block_ask_user"}
UNMAPPED_ROUTE: Final = "suspend_with_handoff_note"
"""What happens to a failure that the card does not name: it is never swallowed (FE-1)."""

CARD_NAME: Final = "card.yaml"
"""Of the card in a directory that it has for itself and its files."""
CARD_ENDINGS: Final = (".yaml", ".yml")

ACCEPTANCE_NODE: Final = "acceptance"
"""The node of the phase ``verify`` that a card's own acceptance is checked at."""


class CardInput(msgspec.Struct, frozen=True):
    """One typed input."""

    name: str
    word: str
    """The type word; empty where the card has a JSON Schema of its own."""
    schema: dict[str, Any]
    """JSON Schema of its value."""
    required: bool = False
    default: Any = None
    """Of an input that need not be given; None: it then has no value."""
    about: str = ""


class CardOutput(msgspec.Struct, frozen=True):
    """One thing that an instance leaves behind."""

    name: str
    path: str
    """Relative to the workspace of the instance; may hold ``{{input}}``."""
    artifact_class: str = "file"


class Phase(NamedTuple):
    """One phase and the nodes that belong to it, as they are written."""

    name: str
    place: Place
    nodes: tuple[tuple[str, Place, Tree], ...] = ()
    """Id, place and entry of each, in the order of the file."""


class Card(msgspec.Struct, frozen=True):
    """A procedure that validated."""

    sop_id: str
    version: str
    title: str
    purpose: str
    phases: tuple[Phase, ...]
    escalation: dict[str, str]
    """Failure class or event to one of ``ROUTES``; all failure classes are there."""
    inputs: tuple[CardInput, ...] = ()
    outputs: tuple[CardOutput, ...] = ()
    acceptance: tuple[Tree, ...] = ()
    """Checks as task files have them, of the instance as a whole."""
    side_effects: tuple[Effect, ...] = ("S0",)
    """The effect classes that its nodes may have (SC-1)."""
    verify: VerificationLevel = "V1"
    """Of the nodes that make an output and say nothing else."""
    idempotent: bool = True
    budget_hints: dict[str, Any] = {}
    grants: tuple[str, ...] = ()
    """Of every node, before its own."""
    files: tuple[str, ...] = ()
    """Files beside the card that belong to it, such as its scripts."""
    sha256: str = ""
    """Of the bytes of the card itself."""
    path: str = ""
    """Where it was read from, for messages."""

    @property
    def phase_names(self) -> tuple[str, ...]:
        """Every phase, in order."""
        return tuple(phase.name for phase in self.phases)

    @property
    def directory_name(self) -> str:
        """The directory of its copy below ``sops/`` of a workspace."""
        return f"{self.sop_id}-{self.version}"

    def route_for(self, event: str) -> str:
        """The way out of a failure class or an event; of one it does not name, the generic one."""
        return self.escalation.get(event, UNMAPPED_ROUTE)

    def input_named(self, name: str) -> CardInput | None:
        """The input of exactly this name."""
        return next((one for one in self.inputs if one.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """The card for people and programs, in the order in which a card is written."""
        return {
            "sop_id": self.sop_id,
            "version": self.version,
            "title": self.title,
            "purpose": self.purpose,
            "inputs": [_input_dict(one) for one in self.inputs],
            "outputs": [msgspec.to_builtins(one) for one in self.outputs],
            "side_effects": list(self.side_effects),
            "verify": self.verify,
            "idempotent": self.idempotent,
            "budget_hints": self.budget_hints,
            "grants": list(self.grants),
            "escalation": self.escalation,
            "phases": [
                {"phase": phase.name, "nodes": [node_id for node_id, _, _ in phase.nodes]}
                for phase in self.phases
            ],
            "files": list(self.files),
            "sha256": self.sha256,
            "path": self.path,
        }


def _input_dict(one: CardInput) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": one.name, "schema": one.word or one.schema}
    shown["required"] = one.required
    if one.default is not None:
        shown["default"] = one.default
    return shown | ({"about": one.about} if one.about else {})


def unmapped_classes(escalation: dict[str, str]) -> list[str]:
    """The failure classes that have no route, in their usual order."""
    return [name for name in FAILURE_CLASSES if name not in escalation]


def is_path(ref: str) -> bool:
    """Whether a reference to a card is the path of one."""
    return "/" in ref or ref.endswith(CARD_ENDINGS)
