"""What one instruction comes to, gathered for the one commit that propagates it (S3).

Job: number and mark the events that an instruction causes, and remember what was done where.
Invariants: every event names the instruction (payload ``steering``); a reference to an event of the
same commit is the number that it will have; no node is recalled twice.
"""

from collections.abc import Iterable
from typing import Final

from perdure.core import commands as c
from perdure.core.asking import ask_draft, free_id
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.machine import open_nodes
from perdure.core.model import Node, text_digest
from perdure.core.recall import recall

nodes_per_commit_max: Final = 5_000
"""Nodes that one commit propagates an instruction to; the rest follow in the next ones."""
question_id_chars_max: Final = 60
directive_chars_max: Final = 4_000
"""Of an instruction that contracts carry; a longer one is named by its event instead."""
directives_chars_max: Final = 32_000
"""Of all instructions of one node, before the next are carried by their beginnings."""
directive_beginning_chars: Final = 100


class Propagation:
    """The events of one instruction, in order."""

    def __init__(
        self, replica: Replica, steering_id: str, text: str, reading: str, context: c.Context
    ) -> None:
        self.replica = replica
        self.state = replica.state
        self.context = context
        self.steering_id = steering_id
        self.steering = replica.state.steering[steering_id]
        self.text = text
        self.reading = reading
        self.drafts: list[Draft] = []
        self.moves: list[c.FileMove] = []
        self.applied: dict[str, str] = {}
        """Node to what this commit does there."""
        self.outcomes: list[str] = []
        """What it does besides, each a part of the sentence of the acknowledgement."""
        self.doubts: list[str] = []
        """What the sponsor has to hear of besides, each the end of a sentence."""
        self.corrects: dict[str, str] = {}
        """DONE node to the id of the corrective node it adds."""
        self.asked: list[str] = []
        """Ids of the questions it puts."""
        self.is_whole = True
        """Whether this commit is the last one, which acknowledges."""
        self._recalled: dict[str, str] = {}

    @property
    def directive(self) -> str:
        """The instruction as contracts carry it."""
        return self._cut(directive_chars_max)

    def directive_beside(self, held: Iterable[str]) -> str:
        """The same beside others: by its beginning where these are much, for a contract is small.

        So no number of instructions keeps a node from being started.
        """
        beside = sum(map(len, held))
        much = beside + len(self.directive) > directives_chars_max
        return self._cut(directive_beginning_chars if much else directive_chars_max)

    def _cut(self, most: int) -> str:
        words = self.text.strip()
        if len(words) <= most:
            return words or f"See {self.steering.ref}."
        return f"{words[:most]}... (whole: {self.steering.ref})"

    @property
    def cause(self) -> str:
        """The instruction as a reason."""
        return f"steering {self.steering_id} ({self.steering.ref})"

    def add(self, draft: Draft) -> str:
        """Take an event in; returns how others of the commit cite it."""
        payload = {**draft.payload, "steering": self.steering_id}
        self.drafts.append(
            Draft(draft.kind, draft.entity_type, draft.entity_id, payload, draft.evidence)
        )
        return f"J-{self.state.seq + len(self.drafts)}"

    def tell(self, node_id: str, what: str) -> None:
        """Remember what was done at a node, as its acknowledgement says it."""
        before = self.applied.get(node_id)
        self.applied[node_id] = f"{before}, {what}" if before else what

    def recall(self, node: Node) -> str:
        """End the attempt at a node that is at work, once; returns the state it is in then."""
        if node.node_id not in self._recalled:
            ended = recall(self.replica, node, f"recalled by {self.cause}", self.context)
            for draft in ended.drafts:
                ref = self.add(draft)
                if draft.kind == "STATE_TRANSITION":
                    self._recalled[node.node_id] = str(draft.payload["to"])
                    self.tell(node.node_id, f"recalled {ref}")
            self.moves += ended.moves
        return self._recalled[node.node_id]

    def targets(self) -> list[Node]:
        """The nodes that it names and that there are, or every open one."""
        nodes, named = self.state.nodes, tuple(dict.fromkeys(self.steering.targets))
        for name in named:
            if name not in nodes:
                self.doubts.append(f"there is no node {name!r}")
        return [nodes[name] for name in named or open_nodes(self.state) if name in nodes]

    def ask(
        self,
        node: Node | None,
        text: str,
        kind: str,
        to: str,
        *,
        options: tuple[str, ...] = (),
        default: str = "",
        context: str = "",
    ) -> str:
        """Put a question that it causes; returns how others of the commit cite it."""
        base = f"Q-{self.steering_id}{f'-{node.node_id}' if node is not None else ''}"
        if len(base) > question_id_chars_max:
            base = f"Q-{self.steering_id[:40]}-{text_digest(base)[:8]}"
        question_id = free_id(self.state, base, beside=self.asked)
        self.asked.append(question_id)
        draft = ask_draft(
            self.state,
            node,
            question_id,
            text,
            kind=kind,
            options=options,
            default=default,
            to=to,
            package={"context": context, "links": [self.steering.ref]},
            now=self.context.now,
        )
        return self.add(draft)
