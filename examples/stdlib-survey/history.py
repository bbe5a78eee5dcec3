"""What a journal says about the nodes of a task, read from outside.

Knows the format of ``journal.jsonl`` and nothing of perdure: one JSON object a line; the lines of
one commit are marked ``"c": [i, n]``; a node moves only by a STATE_TRANSITION. Reads, never writes.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]


class Move(NamedTuple):
    """One transition of a node."""

    node: str
    state: str
    edge: str


class History:
    """The committed part of a journal: what was cut short in the middle never happened."""

    def __init__(self, data: bytes) -> None:
        lines = data.split(b"\n")[:-1]
        events: list[Event] = [json.loads(line) for line in lines]
        while events:
            place, size = events[-1].get("c", (1, 1))
            if place == size:
                break
            events.pop()
        self.lines = len(events)
        self.data = b"".join(line + b"\n" for line in lines[: self.lines])
        self.moves = [
            Move(event["entity"]["id"], event["payload"]["to"], event["payload"].get("edge", ""))
            for event in events
            if event["kind"] == "STATE_TRANSITION" and event["entity"]["type"] == "node"
        ]
        self.states = {move.node: move.state for move in self.moves}

    @classmethod
    def of(cls, journal: Path) -> "History":
        """What the file says now; an absent one says nothing."""
        return cls(journal.read_bytes() if journal.exists() else b"")

    def nodes(self, *wanted: str) -> list[str]:
        """The nodes that are in one of these states, in the order of their first move."""
        return [node for node, state in self.states.items() if state in wanted]

    def starts(self, since: int = 0) -> list[str]:
        """The node of each start of a command, from the given move on."""
        return [move.node for move in self.moves[since:] if move.state == "RUNNING"]

    def done(self) -> list[str]:
        """The node of each N06, the only edge into DONE: verified on files that were read."""
        return [move.node for move in self.moves if (move.state, move.edge) == ("DONE", "N06")]

    def started_when_done(self) -> list[str]:
        """Each node that was started although it was DONE. There should be none."""
        states: dict[str, str] = {}
        found = []
        for node, state, _ in self.moves:
            if state == "RUNNING" and states.get(node) == "DONE":
                found.append(node)
            if states.get(node) != "DONE":
                states[node] = state
        return found
