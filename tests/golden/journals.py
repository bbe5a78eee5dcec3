"""The journals that each version has written, and what they mean.

``journals/VERSION/NAME.jsonl`` are the bytes as they were written, ``NAME.json`` what replaying
them gives: the sha256 of the canonical state, and facts that a person can read. Both stay as they
are for ever. ``python tests/golden/journals.py``, or PERDURE_REWRITE=1 for the tests, adds those
that this version has not written yet, and never touches one that is there.
"""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.crash import scenes, workloads
from tests.crash.sim_machine import SimMachine
from tests.golden.dispatched import dispatched

from perdure import __version__
from perdure.core.codec import Scan, to_json
from perdure.core.fold import Replica

HERE = Path(__file__).resolve().parent
JOURNALS = HERE / "journals"


def recovered(machine: SimMachine) -> None:
    """A torn tail, an orphan and a vanished file, put right by one recovery."""
    scenes.torn_into_noise(machine)
    machine.disk.unlink(f"{machine.root}/artifacts/N1/a.txt", durable=True)
    machine.open().close()


SCRIPTS: dict[str, Callable[[SimMachine], object]] = {
    "a_run_of_four_nodes": workloads.graph_run,
    "failed_and_tried_again": workloads.fail_and_retry,
    "quarantined_with_a_successor": workloads.quarantine,
    "calls_on_the_graph": workloads.calls_on_the_graph,
    "messages_from_the_drop_box": workloads.drop_box,
    "any_text_and_op_ids": workloads.words,
    "several_events_in_a_commit": workloads.batch,
    "recovered_from_damage": recovered,
    "gates_asked_and_ruled_on": workloads.rulings,
    "held_for_a_person": workloads.held_for_people,
    "instructions": workloads.steering,
    "words_in_a_file": workloads.written_words,
    "another_plan_and_goal": workloads.replans,
    "observations_and_replies": workloads.observations,
    "dispatched_workers": dispatched,
}


def replayed(journal: bytes) -> tuple[Replica, Scan]:
    """The state after every line, and the scan that checked each of them."""
    replica, scan = Replica(), Scan()
    for events in scan.commits([journal]):
        replica.apply_all(events)
    return replica, scan


def meaning(journal: bytes) -> dict[str, Any]:
    """What a journal says: everything, as a hash, and the main facts."""
    replica, scan = replayed(journal)
    state = replica.state
    return {
        "state_sha256": sha256(to_json(state, sort=True)).hexdigest(),
        "chain": scan.tip.value.hex(),
        "task_id": state.task_id,
        "fsm_task": state.fsm_task,
        "seq": state.seq,
        "epoch": state.epoch,
        "unchained": scan.unchained,
        "nodes": {name: node.state for name, node in state.nodes.items()},
        "artifacts": {
            name: [artifact.status, artifact.path, artifact.integrity.value]
            for name, artifact in state.artifacts.items()
        },
        "steering": {name: said.reading for name, said in state.steering.items()},
        "goal": [state.goal_statement, state.goal_amendments],
        "questions": {name: asked.kind for name, asked in state.questions.items()},
        "closed_questions": dict(state.closed_questions),
        "approvals": {
            name: {gate: approval.by for gate, approval in node.approvals.items()}
            for name, node in state.nodes.items()
            if node.approvals
        },
        "ops": dict(state.ops),
        "ignored_kinds": dict(state.ignored_kinds),
    }


def add_missing() -> list[str]:
    """Write what this version has not written yet; says which."""
    folder = JOURNALS / __version__
    added = []
    for name, script in SCRIPTS.items():
        if (folder / f"{name}.jsonl").exists():
            continue
        machine = SimMachine.new()
        script(machine)
        journal = machine.journal()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_bytes(journal)
        text = json.dumps(meaning(journal), indent=1, sort_keys=True) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        added.append(name)
    return added


def rewriting() -> bool:
    return os.environ.get("PERDURE_REWRITE") == "1"


if __name__ == "__main__":
    print("added:", ", ".join(add_missing()) or "nothing")
