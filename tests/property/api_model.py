"""A small model of one task, which knows nothing of journals, disks or the code it is held against.

Each call that changes something says what comes of it: the states that the task goes through, in
their order, or nothing when it is to be refused. A process that dies in the middle of a call leaves
one of them.
"""

import copy
from dataclasses import dataclass, field
from typing import Literal

retry_budget = 2

GatePoint = Literal["", "start", "done"]
Content = tuple[tuple[str, bytes], ...]
"""What a gate is about: whose files, and their bytes."""


class Refused(list["TaskModel"]):
    """The states of a call that is refused, and has put a question on record all the same."""


@dataclass
class NodeModel:
    """What somebody who uses the library knows of a node."""

    deps: tuple[str, ...]
    state: str = "OPEN"
    """OPEN stands for PENDING and READY; the others are the protocol's."""
    method: str = "default"
    failures: dict[str, int] = field(default_factory=dict)
    """By method; interruptions do not count."""
    written: bytes | None = None
    """What the attempt under way has written."""
    registered: bytes | None = None
    follows: frozenset[str] = frozenset()
    """Instructions that its contracts carry."""
    gate: GatePoint = ""
    """The move that takes a person's consent."""
    approved: Content | None = None
    refused: Content | None = None
    rounds: int = 0
    """How often its gate was refused."""

    @property
    def used_up(self) -> bool:
        return self.failures.get(self.method, 0) >= retry_budget


@dataclass
class QuestionModel:
    """A question that somebody has to answer."""

    node: str | None
    content: Content | None = None
    """What it is about, when a gate asks it."""


@dataclass
class TaskModel:
    """A task and everything that was promised about it."""

    nodes: dict[str, NodeModel] = field(default_factory=dict)
    ops: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    steering: dict[str, str] = field(default_factory=dict)
    pending: str = ""
    """Words that are on record and have not been acted on."""
    directed: frozenset[str] = frozenset()
    """Instructions that nodes added later follow too."""
    questions: dict[str, QuestionModel] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    """Questions that are settled."""

    def view(self) -> dict[str, object]:
        """What is compared."""
        return {
            "nodes": {name: node.state for name, node in self.nodes.items()},
            "deps": {name: node.deps for name, node in self.nodes.items()},
            "registered": {
                name: node.registered
                for name, node in self.nodes.items()
                if node.registered is not None
            },
            "ops": self.ops,
            "notes": self.notes,
            "steering": self.steering,
            "questions": {name: asked.node for name, asked in self.questions.items()},
        }

    def frontier(self) -> set[str]:
        return {
            name
            for name, node in self.nodes.items()
            if self._waits_for_gate_alone(name)
            and self.question_of_gate(name) is None
            and (node.gate != "start" or self._is_approved_on_record(name))
        }

    def _waits_for_gate_alone(self, name: str) -> bool:
        node = self.nodes.get(name)
        return (
            node is not None
            and node.state in ("OPEN", "RETRYABLE")
            and not node.used_up
            and self._deps_done(node)
            and not self._held(name)
        )

    def _deps_done(self, node: NodeModel) -> bool:
        return all(self.nodes[dep].state == "DONE" for dep in node.deps)

    def _held(self, name: str) -> bool:
        """By a question that is not its gate's."""
        return any(q.node == name and q.content is None for q in self.questions.values())

    def question_of_gate(self, name: str) -> str | None:
        """The open question of the node's gate."""
        found = (i for i, q in self.questions.items() if q.node == name and q.content is not None)
        return next(found, None)

    def content(self, name: str) -> Content:
        """What the node's gate is about now."""
        node = self.nodes[name]
        holders = (name,) if node.gate == "done" else node.deps
        files = ((holder, self.nodes[holder].registered) for holder in holders)
        return tuple((holder, data) for holder, data in files if data is not None)

    def _is_approved_on_record(self, name: str) -> bool:
        """As far as the record tells, which knows whose files there are."""
        approved = self.nodes[name].approved
        return approved is not None and [holder for holder, _ in approved] == [
            holder for holder, _ in self.content(name)
        ]

    def _close(self, name: str, *, gates_only: bool = False) -> None:
        """Settle the questions about a node, in place."""
        for question_id, question in list(self.questions.items()):
            if question.node == name and (question.content is not None or not gates_only):
                del self.questions[question_id]
                self.closed.add(question_id)

    def _ask_at_gate(self, name: str) -> bool:
        """Have the gate's question about what is there now open, in place; False where it is."""
        node, content = self.nodes[name], self.content(name)
        if node.gate == "start" and node.refused == content:
            return False  # a person has refused just that
        question_id = self.question_of_gate(name)
        if question_id is not None and self.questions[question_id].content == content:
            return False
        base = free = f"G-{name}"
        number = 1
        while free in self.questions or free in self.closed:
            number += 1
            free = f"{base}.{number}"
        self._close(name, gates_only=True)
        node.approved = None
        self.questions[free] = QuestionModel(name, content)
        return True

    def _next(self, op: str | None = None) -> "TaskModel":
        after = copy.deepcopy(self)
        if op is not None:
            after.ops.add(op)
        return after

    # What calls come to: the states in their order, or None for a refusal

    def add(
        self, name: str, deps: tuple[str, ...], op: str | None, gate: GatePoint = ""
    ) -> "list[TaskModel] | None":
        if op in self.ops:
            return [self]
        if name in self.nodes or name in deps or any(dep not in self.nodes for dep in deps):
            return None
        after = self._next(op)
        after.nodes[name] = NodeModel(deps, follows=self.directed, gate=gate)
        return [self, after]

    def start(self, name: str) -> "list[TaskModel] | None":
        if not self._waits_for_gate_alone(name):
            return None
        after = self._next()
        node = after.nodes[name]
        if node.gate == "start" and node.approved != after.content(name):
            return Refused([self, after]) if after._ask_at_gate(name) else None
        node.state, node.written = "RUNNING", None
        return [self, after]

    def write(self, name: str, data: bytes) -> None:
        """Not a call: what the executor of the attempt under way does."""
        self.nodes[name].written = data

    def submit(self, name: str) -> "list[TaskModel] | None":
        node = self.nodes.get(name)
        if node is None or node.state not in ("RUNNING", "VERIFYING"):
            return None
        states = [self]
        if node.state == "RUNNING":
            if node.written is None:
                return None
            claimed = self._next()
            claimed.nodes[name].state = "VERIFYING"
            claimed.nodes[name].registered = node.written
            states.append(claimed)
        if self._held(name):
            return Refused(states) if states[1:] else None
        return [*states, states[-1].judged(name)]

    def judged(self, name: str) -> "TaskModel":
        """After the verdict; an empty file does not pass."""
        after = self._next()
        node = after.nodes[name]
        if node.registered:
            if node.gate == "done" and node.approved != after.content(name):
                after._ask_at_gate(name)
            else:
                node.state = "DONE"
                after._close(name)
            return after
        again = node.failures.get(node.method, 0) + 1 < retry_budget
        node.state = "RETRYABLE" if again else "QUARANTINED"
        if again:
            node.failures[node.method] = node.failures.get(node.method, 0) + 1
        node.registered = None
        after._close(name, gates_only=again)
        return after

    def check(self, name: str) -> "list[TaskModel] | None":
        if name not in self.nodes or self.nodes[name].state != "VERIFYING" or self._held(name):
            return None
        return [self, self.judged(name)]

    def fail(self, name: str) -> "list[TaskModel] | None":
        if name not in self.nodes or self.nodes[name].state != "RUNNING":
            return None
        after = self._next()
        node = after.nodes[name]
        node.state, node.written, node.registered = "RETRYABLE", None, None
        node.failures[node.method] = node.failures.get(node.method, 0) + 1
        return [self, after]

    def retry(self, name: str, method: str) -> "list[TaskModel] | None":
        node = self.nodes.get(name)
        if node is None or node.state not in ("RETRYABLE", "BLOCKED"):
            return None
        if node.failures.get(method, 0) >= retry_budget:
            return None
        if node.state == "BLOCKED" and not self._deps_done(node):
            return None
        after = self._next()
        after.nodes[name].method = method
        after._close(name)
        if node.state == "BLOCKED":
            after.nodes[name].state = "OPEN"
        return [self, after]

    def cancel(self, name: str, op: str | None) -> "list[TaskModel] | None":
        if op in self.ops:
            return [self]
        if name not in self.nodes or self.nodes[name].state in ("QUARANTINED", "CANCELLED"):
            return None
        after = self._next(op)
        after.nodes[name].state = "CANCELLED"
        after._close(name)
        return [self, after]

    def note(self, text: str, op: str | None) -> "list[TaskModel]":
        if op in self.ops:
            return [self]
        after = self._next(op)
        after.notes.append(text)
        return [self, after]

    def ask(self, question_id: str, name: str | None, keep: bool) -> "list[TaskModel] | None":
        """The text is always the same, so the same id about the same node is the same question."""
        known = self.questions.get(question_id)
        if known is not None:
            return [self] if known.node == name else None
        if question_id in self.closed:
            return None
        node = self.nodes.get(name) if name is not None else None
        if name is not None and (
            node is None or node.state in ("DONE", "QUARANTINED", "CANCELLED")
        ):
            return None
        after = self._next()
        after.questions[question_id] = QuestionModel(name)
        if name is not None and after.nodes[name].state == "RUNNING" and not keep:
            after.nodes[name].state, after.nodes[name].written = "BLOCKED", None
        return [self, after]

    def answer(self, question_id: str) -> "list[TaskModel] | None":
        """Of a question that no gate has asked."""
        if question_id not in self.questions:
            return None
        after = self._next()
        name = after.questions.pop(question_id).node
        after.closed.add(question_id)
        return [self, after if name is None else after._freed(name)]

    def _freed(self, name: str) -> "TaskModel":
        """After a question about it was settled: what waited for that alone goes on."""
        node = self.nodes[name]
        others = any(question.node == name for question in self.questions.values())
        if node.state == "VERIFYING" and not others:
            return self.judged(name)
        if node.state == "BLOCKED" and not others and self._deps_done(node):
            node.state = "OPEN"
        return self

    def approve(self, name: str) -> "list[TaskModel] | None":
        """What the gate's open question is about, if that is what is there."""
        question_id = self.question_of_gate(name)
        if question_id is None:
            return None
        after = self._next()
        content = after.content(name)
        if after.questions[question_id].content != content:
            return Refused([self, after]) if after._ask_at_gate(name) else None
        after._close(name, gates_only=True)
        after.nodes[name].approved, after.nodes[name].refused = content, None
        return [self, after._freed(name)]

    def reject(self, name: str) -> "list[TaskModel] | None":
        """A start stays closed for what is there; a result is made again."""
        question_id = self.question_of_gate(name)
        if question_id is None:
            return None
        after = self._next()
        node = after.nodes[name]
        node.refused, node.approved = after.questions[question_id].content, None
        node.rounds += 1
        after._close(name, gates_only=True)
        if node.gate == "done":
            node.state, node.registered = "RETRYABLE", None
        return [self, after]

    def steer(self, name: str, text: str) -> "list[TaskModel] | None":
        if name in self.steering:
            return [self] if self.steering[name] == text else None
        logged = self._next()
        logged.steering[name], logged.pending = text, text
        return [self, logged, logged.propagated()]

    def propagated(self) -> "TaskModel":
        """After the words were acted on: what is at work is recalled, what is open follows them."""
        after = self._next()
        words, after.pending = after.pending, ""
        after.directed |= {words}
        for name, node in after.nodes.items():
            if node.state in ("DONE", "QUARANTINED", "CANCELLED") or words in node.follows:
                continue
            node.follows |= {words}
            if node.state in ("RUNNING", "VERIFYING"):
                if node.state == "VERIFYING":
                    after._close(name, gates_only=True)
                node.state = "OPEN" if after._deps_done(node) else "RETRYABLE"
                node.written, node.registered = None, None
        return after

    # What happens to it

    def reopened(self) -> "TaskModel":
        """After the recovery by another coordinator: attempts under way are interrupted."""
        after = self._next()
        for node in after.nodes.values():
            if node.state == "RUNNING":
                node.state, node.written, node.registered = "RETRYABLE", None, None
        return after.propagated() if after.pending else after

    def bereft(self, name: str) -> "TaskModel":
        """After the recovery that finds the file of a DONE node gone (RC1)."""
        after = self._next()
        after.nodes[name].state, after.nodes[name].registered = "OPEN", None
        return after
