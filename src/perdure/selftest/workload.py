"""What the processes of the self-test do: one task's life, and bringing any task to its end.

Invariants: the life is the same commits each time, so that what a killed one may leave is known;
``promise`` is told the number of the last event whenever a call has returned, which is the
acknowledgement.
"""

from collections.abc import Callable
from typing import Final

from perdure.core.gates import is_of_gate
from perdure.errors import HaltError, RefusedError, invariant
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.world import World

TASK: Final = "SELFTEST"
PERSON: Final = "gatekeeper:selftest"
rounds_max: Final = 50
"""Steps in which any task of this workload comes to its end."""


def write_output(world: World, root: str, path: str, text: str) -> None:
    """What an executor does: put a file there. Nothing is synced."""
    full = f"{root}/{path}"
    world.disk.make_dirs(full.rpartition("/")[0])
    world.disk.replace(full, text.encode(), durable=False)


def live(world: World, root: str, promise: Callable[[int], None]) -> None:
    """A task with a failed attempt, an instruction, a consent, a resume and all in between."""
    with HaltRuntime(root, TASK, goal="be killed", world=world) as runtime:
        promise(runtime.state.seq)
        with runtime.batch():
            runtime.add_node(
                "N1", "first", outputs=["artifacts/N1/a.txt", "shared/b.txt"], retry_budget=3
            )
            gate = {"gate_id": "G-N2", "blocks": "done"}
            runtime.add_node("N2", "second", deps=["N1"], gates=[gate])
        promise(runtime.state.seq)
        runtime.move_task("EXECUTING")
        promise(runtime.state.seq)
        runtime.start("N1")
        promise(runtime.state.seq)
        write_output(world, root, "artifacts/N1/a.txt", "not good")
        runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
        promise(runtime.state.seq)
        runtime.fail("N1", "transient-agent", "not good")
        promise(runtime.state.seq)
        runtime.start("N1")
        write_output(world, root, "artifacts/N1/a.txt", "good")
        write_output(world, root, "shared/b.txt", "good as well")
        promise(runtime.state.seq)
        runtime.submit("N1")
        promise(runtime.state.seq)
    promise(runtime.state.seq)
    with HaltRuntime.resume(root, world=world) as runtime:
        runtime.start("N2")
        write_output(world, root, "artifacts/N2/deep/c.txt", "half")
        promise(runtime.state.seq)
        runtime.steering("ST-1", "one more thing")  # which recalls N2
        promise(runtime.state.seq)
        runtime.start("N2")
        write_output(world, root, "artifacts/N2/deep/c.txt", "good")
        runtime.submit("N2")  # which comes to the question of its gate
        promise(runtime.state.seq)
        runtime.approve("G-N2", by=PERSON)
        promise(runtime.state.seq)
    promise(runtime.state.seq)
    runtime = HaltRuntime.attach(root, world=world)
    runtime.note("a short command", op="op-1")
    promise(runtime.state.seq)
    runtime.close()


def finish(world: World, runtime: HaltRuntime) -> None:
    """Bring a task, whatever a crash made of it, to the point where every node is DONE."""
    if "LAST" not in runtime.state.nodes:
        runtime.add_node("LAST", "the last one", outputs=["artifacts/LAST/end.txt"])
    for _ in range(rounds_max):
        if all(node.state == "DONE" for node in runtime.state.nodes.values()):
            break
        _one_round(world, runtime)
    states = {name: node.state for name, node in runtime.state.nodes.items()}
    invariant(set(states.values()) == {"DONE"}, f"the work does not go on: {states}")


def _one_round(world: World, runtime: HaltRuntime) -> None:
    for question in list(runtime.state.questions.values()):
        if is_of_gate(question):
            _consent(runtime, question.question_id)
    for name, node in list(runtime.state.nodes.items()):
        waits = node.state == "RETRYABLE" and name not in runtime.frontier()
        if node.state == "BLOCKED" or waits:
            runtime.retry(name, "go on", method=f"method-{node.attempts}")
        elif node.state == "VERIFYING":
            runtime.check(name)
        elif node.state == "RUNNING":
            _produce(world, runtime, name)
            try:
                runtime.submit(name)
            except HaltError as error:
                runtime.fail(name, "transient-agent", error.code)
    for name in runtime.frontier()[:1]:
        runtime.start(name)


def _consent(runtime: HaltRuntime, question_id: str) -> None:
    try:
        runtime.approve(question_id, by=PERSON)
    except RefusedError as error:
        if error.code != "content_changed":  # what it is about is asked about anew
            raise


def _produce(world: World, runtime: HaltRuntime, name: str) -> None:
    node = runtime.node(name)
    paths = node.spec.outputs or (f"artifacts/{name}/made-{node.attempts}.txt",)
    for path in paths:
        if path not in runtime.engine.replica.paths:
            text = f"{path} of attempt {node.attempts}"
            write_output(world, runtime.engine.layout.root, path, text)
