"""What the processes of the crash tests are killed in: one function for each way to use it.

Each calls ``machine.acknowledge()`` whenever a call has returned. Each is repeatable byte for byte.
"""

from tests.crash.machine import Machine

from perdure.errors import HaltError


def create(machine: Machine) -> None:
    machine.open("T").close()


def add_nodes(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt", "shared/b.txt"])
    machine.acknowledge()
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    runtime.amend_node("N2", "more urgent", priority=5)
    machine.acknowledge()
    runtime.close()


def life_by_transitions(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    runtime.transition("N1", "READY")
    machine.acknowledge()
    runtime.transition("N1", "RUNNING")
    machine.acknowledge()
    machine.write("artifacts/N1/deep/down/report.md", b"report")
    runtime.register_artifact("A-1", "artifacts/N1/deep/down/report.md", node_id="N1")
    machine.acknowledge()
    runtime.transition("N1", "VERIFYING", evidence="A-1 is there")
    machine.acknowledge()
    runtime.transition("N1", "DONE", evidence=["A-1 verified"])
    machine.acknowledge()
    runtime.close()


def submit(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node(
        "N1",
        "first",
        outputs=["artifacts/N1/a.txt", "shared/b.txt"],
        accept=[
            "nonempty: shared/b.txt",
            "sha256: artifacts/N1/a.txt " + "ca978112ca1bbdcafac231b"
            "39a23dc4da786eff8147c4e72b9807785afee48bb",
        ],
    )
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    runtime.start("N1")
    machine.acknowledge()
    machine.write("artifacts/N1/a.txt", b"a")
    machine.write("shared/b.txt", b"bb")
    runtime.beat(["N1"], "nearly there")
    machine.acknowledge()
    runtime.submit("N1")
    machine.acknowledge()
    runtime.start("N2")
    machine.write("artifacts/N2/c.txt", b"c")
    runtime.submit("N2", check=False)
    machine.acknowledge()
    runtime.check("N2")
    machine.acknowledge()
    runtime.close()


def fail_and_retry(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"], retry_budget=2)
    runtime.start("N1")
    machine.acknowledge()
    machine.write("artifacts/N1/a.txt", b"bad")
    machine.write("artifacts/N1/stray.txt", b"half")
    runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    machine.acknowledge()
    runtime.fail("N1", "transient-agent", "exit 3")
    machine.acknowledge()
    runtime.start("N1")
    machine.acknowledge()
    runtime.fail("N1", "transient-environment", "no network")
    machine.acknowledge()
    runtime.retry("N1", "by hand", method="manual")
    machine.acknowledge()
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"good")
    runtime.submit("N1")
    machine.acknowledge()
    runtime.close()


def quarantine(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node(
        "N1",
        "first",
        outputs=["artifacts/N1/a.txt"],
        accept=["nonempty: artifacts/N1/a.txt"],
        retry_budget=2,
    )
    runtime.add_node("N2", "second", deps=["N1"])
    machine.acknowledge()
    for _ in range(2):
        runtime.start("N1")
        machine.write("artifacts/N1/a.txt", b"")
        runtime.submit("N1")
        machine.acknowledge()
    runtime.add_node("N1b", "first again", successor_of="N1")
    machine.acknowledge()
    runtime.close()


def batch(machine: Machine) -> None:
    runtime = machine.open("T")
    with runtime.batch():
        for number in range(5):
            runtime.add_node(f"N{number}", "one of many")
        runtime.note("five at once")
    machine.acknowledge()
    try:
        with runtime.batch():
            runtime.add_node("X1", "never")
            raise HaltError("the caller changed its mind")
    except HaltError:
        pass
    with runtime.engine.batch(op="op-1"):
        runtime.add_node("Y1", "once")
        runtime.set_hint("look at Y1")
    machine.acknowledge()
    assert "op-1" in runtime.state.ops
    runtime.close()


def words(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.note("a lone surrogate \ud800 and a separator \u2028", op="op-1")
    machine.acknowledge()
    runtime.note("a lone surrogate \ud800 and a separator \u2028", op="op-1")
    runtime.steering("ST-1", "turn left")
    machine.acknowledge()
    runtime.steering("ST-1", "turn left")
    runtime.decision("", "left it is")
    machine.acknowledge()
    runtime.append("EXTERNAL_OBSERVED", {"type": "task", "id": "T"}, {"status": 200})
    machine.acknowledge()
    runtime.close()


def pause_and_resume(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first")
    runtime.move_task("EXECUTING")
    machine.acknowledge()
    runtime.pause("lunch")
    machine.acknowledge()
    runtime.close()
    runtime = machine.open()
    runtime.move_task("EXECUTING", "back")
    machine.acknowledge()
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"a")
    runtime.submit("N1")
    machine.acknowledge()
    runtime.move_task("FINAL_AUDIT")
    machine.acknowledge()
    runtime.close()


def close_with_projections(machine: Machine) -> None:
    runtime = machine.open("T")
    for number in range(3):
        machine.clock.advance(25.0)  # projections are due, and the lease is renewed
        runtime.add_node(f"N{number}", "one")
        machine.acknowledge()
    runtime.start("N0")
    machine.acknowledge()
    runtime.close()


def short_commands(machine: Machine) -> None:
    runtime = machine.open("T")
    runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"], retry_budget=3)
    runtime.close()
    machine.acknowledge()
    machine.attach().note("hello", op="op-1")
    machine.acknowledge()
    machine.attach().start("N1", session=True)
    machine.acknowledge()
    machine.write("artifacts/N1/a.txt", b"a")
    machine.attach().register_artifact("", "artifacts/N1/a.txt", node_id="N1")
    machine.acknowledge()
    machine.attach().fail("N1", "transient-agent", "exit 1")
    machine.acknowledge()
    machine.attach().start("N1", session=True)
    machine.write("artifacts/N1/a.txt", b"b")
    machine.acknowledge()
    machine.attach().submit("N1")
    machine.acknowledge()


ALL = (
    create,
    add_nodes,
    life_by_transitions,
    submit,
    fail_and_retry,
    quarantine,
    batch,
    words,
    pause_and_resume,
    close_with_projections,
    short_commands,
)
