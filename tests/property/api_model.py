"""A small model of one task, which knows nothing of journals, disks or the code it is held against.

Each call that changes something says what comes of it: the states that the task goes through, in
their order, or nothing when it is to be refused. A process that dies in the middle of a call leaves
one of them.
"""

import copy
from dataclasses import dataclass, field

retry_budget = 2


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

    @property
    def used_up(self) -> bool:
        return self.failures.get(self.method, 0) >= retry_budget


@dataclass
class TaskModel:
    """A task and everything that was promised about it."""

    nodes: dict[str, NodeModel] = field(default_factory=dict)
    ops: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    steering: dict[str, str] = field(default_factory=dict)

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
        }

    def frontier(self) -> set[str]:
        return {
            name
            for name, node in self.nodes.items()
            if node.state in ("OPEN", "RETRYABLE")
            and not node.used_up
            and all(self.nodes[dep].state == "DONE" for dep in node.deps)
        }

    def _next(self, op: str | None = None) -> "TaskModel":
        after = copy.deepcopy(self)
        if op is not None:
            after.ops.add(op)
        return after

    # What calls come to: the states in their order, or None for a refusal

    def add(self, name: str, deps: tuple[str, ...], op: str | None) -> "list[TaskModel] | None":
        if op in self.ops:
            return [self]
        if name in self.nodes or name in deps or any(dep not in self.nodes for dep in deps):
            return None
        after = self._next(op)
        after.nodes[name] = NodeModel(deps)
        return [self, after]

    def start(self, name: str) -> "list[TaskModel] | None":
        if name not in self.frontier():
            return None
        after = self._next()
        node = after.nodes[name]
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
        return [*states, states[-1].judged(name)]

    def judged(self, name: str) -> "TaskModel":
        """After the verdict; an empty file does not pass."""
        after = self._next()
        node = after.nodes[name]
        if node.registered:
            node.state = "DONE"
            return after
        again = node.failures.get(node.method, 0) + 1 < retry_budget
        node.state = "RETRYABLE" if again else "QUARANTINED"
        if again:
            node.failures[node.method] = node.failures.get(node.method, 0) + 1
        node.registered = None
        return after

    def check(self, name: str) -> "list[TaskModel] | None":
        if name not in self.nodes or self.nodes[name].state != "VERIFYING":
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
        if node is None or node.state != "RETRYABLE":
            return None
        if node.failures.get(method, 0) >= retry_budget:
            return None
        after = self._next()
        after.nodes[name].method = method
        return [self, after]

    def cancel(self, name: str, op: str | None) -> "list[TaskModel] | None":
        if op in self.ops:
            return [self]
        if name not in self.nodes or self.nodes[name].state in ("QUARANTINED", "CANCELLED"):
            return None
        after = self._next(op)
        after.nodes[name].state = "CANCELLED"
        return [self, after]

    def note(self, text: str, op: str | None) -> "list[TaskModel]":
        if op in self.ops:
            return [self]
        after = self._next(op)
        after.notes.append(text)
        return [self, after]

    def steer(self, name: str, text: str) -> "list[TaskModel] | None":
        if name in self.steering:
            return [self] if self.steering[name] == text else None
        after = self._next()
        after.steering[name] = text
        return [self, after]

    # What happens to it

    def reopened(self) -> "TaskModel":
        """After the recovery by another coordinator: attempts under way are interrupted."""
        after = self._next()
        for node in after.nodes.values():
            if node.state == "RUNNING":
                node.state, node.written, node.registered = "RETRYABLE", None, None
        return after

    def bereft(self, name: str) -> "TaskModel":
        """After the recovery that finds the file of a DONE node gone (RC1)."""
        after = self._next()
        after.nodes[name].state, after.nodes[name].registered = "OPEN", None
        return after
