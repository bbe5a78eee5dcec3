"""What tests of nested instances share: cards that wait at a gate, and who runs where.

A command below an instance may write in that instance only, so it waits by reading a line from a
FIFO: opening the other end returns when it is at work, and closing that again changes nothing.
"""

import json
import os
import select
import signal
from pathlib import Path
from typing import Any

WAIT_MS = 40_000

ROUTES = """
escalation:
  transient-environment: retry_after_probe
  transient-agent: method_switch_or_escalate
  permanent-spec: quarantine_and_replan
  permanent-resource: block_ask_user
"""

INNER = (
    """
sop_id: test.inner
version: 1.0.0
title: The innermost
purpose: Writes two files, the second when its gate is opened.
inputs: [{name: gate, schema: path, required: true}]
outputs: [{name: text, artifact_class: doc, path: artifacts/second/second.txt}]
"""
    + ROUTES
    + """
phases:
  intake:
  plan:
  work:
    - id: first
      run: echo x >> "$PERDURE_WORKSPACE/tmp/first.count"; echo one > "$PERDURE_SCOPE/first.txt"
      outputs: [artifacts/first/first.txt]
  gather:
    - id: second
      run: until read -r line < "$PERDURE_INPUT_GATE"; do :; done;
        echo "$line" > "$PERDURE_SCOPE/second.txt"
      outputs: [artifacts/second/second.txt]
  verify:
  report:
"""
)

MIDDLE = (
    """
sop_id: test.middle
version: 1.0.0
title: The middle
purpose: Has the innermost write.
inputs: [{name: gate, schema: path, required: true}]
outputs: [{name: text, artifact_class: doc, path: artifacts/call/second.txt}]
files: [inner.yaml]
"""
    + ROUTES
    + """
phases:
  intake:
  plan:
  work:
    - id: before
      run: echo x >> "$PERDURE_WORKSPACE/tmp/before.count"; echo b > "$PERDURE_SCOPE/before.txt"
      outputs: [artifacts/before/before.txt]
    - id: call
      deps: [before]
      sop: {sop: ./inner.yaml, inputs: {gate: "{{gate}}"}}
      outputs: [artifacts/call/second.txt]
  verify:
  report:
"""
)

TASK = """
task_id: top
nodes:
  - id: survey
    sop: {sop: ./middle.yaml, inputs: {gate: ./gate}}
    outputs: [artifacts/survey/second.txt]
  - id: use
    deps: [survey]
    run: cat artifacts/survey/second.txt > "$PERDURE_SCOPE/used.txt"
    outputs: [artifacts/use/used.txt]
"""


def write_cards(directory: Path, **texts: str) -> Path:
    """The cards and the task in a directory; the path of the task."""
    files = {"inner": INNER, "middle": MIDDLE, "task": TASK, **texts}
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    return directory / "task.yaml"


def instances_of(workspace: Path) -> list[Path]:
    """The instances right below a workspace, in the order in which they were called."""
    called = [event["payload"].get("invocation") for event in events_of(workspace)]
    return sorted((workspace / "instances").glob("inv-*"), key=lambda path: called.index(path.name))


def only_instance(workspace: Path) -> Path:
    (found,) = instances_of(workspace)
    return found


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def coordinator_of(workspace: Path) -> int:
    """The pid that holds the lease of a workspace."""
    lease = read_json(workspace / "lease.json")
    assert not lease["released"]
    return int(lease["pid"])


def kill_and_wait(pid: int) -> None:
    """SIGKILL a process, and come back when it is gone, whoever has to reap it."""
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(WAIT_MS)
    finally:
        os.close(descriptor)


def events_of(workspace: Path) -> list[Any]:
    text = (workspace / "journal.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def moves_of(workspace: Path, node: str) -> list[str]:
    """The edges that a node took."""
    return [
        event["payload"]["edge"]
        for event in events_of(workspace)
        if event["kind"] == "STATE_TRANSITION" and event["entity"] == {"type": "node", "id": node}
    ]


def phases_of(workspace: Path) -> list[str]:
    """The phases that an instance entered."""
    return [
        event["payload"]["to"]
        for event in events_of(workspace)
        if event["kind"] == "STATE_TRANSITION" and event["entity"]["type"] == "instance"
    ]


def count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


ASKING = (
    """
sop_id: test.inner
version: 1.0.0
title: The innermost
purpose: Asks which one, and has what it made approved.
inputs: [{name: gate, schema: path, required: true}]
outputs: [{name: text, artifact_class: doc, path: artifacts/second/second.txt}]
"""
    + ROUTES
    + """
phases:
  intake:
  plan:
  work:
    - id: first
      run: |
        if test -e "$PERDURE_WORKSPACE/tmp/asked"; then
          echo one > "$PERDURE_SCOPE/first.txt"
        else
          touch "$PERDURE_WORKSPACE/tmp/asked"
          "$PERDURE_PYTHON" -m perdure ask "Which one?" --node first --option red --option blue
        fi
      outputs: [artifacts/first/first.txt]
    - id: second
      run: echo x >> "$PERDURE_WORKSPACE/tmp/second.count"; echo two > "$PERDURE_SCOPE/second.txt"
      outputs: [artifacts/second/second.txt]
      gates: [{id: fit-to-use, question: Is it fit to use?}]
  verify:
  report:
"""
)


def card(work: str, *, routes: str = ROUTES, output: str = "artifacts/make/made.txt") -> str:
    """A card with these nodes in its one phase of work, written as its YAML has them."""
    return (
        f"""
sop_id: test.one
version: 1.0.0
title: One level
purpose: Does what its one phase says.
outputs: [{{name: made, artifact_class: doc, path: {output}}}]
"""
        + routes
        + f"phases:\n  intake:\n  plan:\n  work:\n{work}\n  verify:\n  report:\n"
    )


ONE_TASK = """
task_id: top
nodes:
  - id: call
    sop: ./one.yaml
    outputs: [artifacts/call/made.txt]
    retry: 2
"""
