"""Journals of earlier versions and of other implementations mean for ever what they meant.

``journals.py`` says how new ones are added. A red test here is a broken promise, not an expectation
to be renewed.
"""

import json
from pathlib import Path

import pytest
from tests.crash.sim_machine import JOURNAL, SimMachine
from tests.golden.journals import (
    HERE,
    JOURNALS,
    SCRIPTS,
    add_missing,
    meaning,
    replayed,
    rewriting,
)

from perdure import __version__
from perdure.errors import CorruptError
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.inspection import verify_workspace

if rewriting():
    add_missing()

GOLDEN = sorted(JOURNALS.rglob("*.jsonl"))
FOREIGN = sorted((HERE / "foreign").glob("*.jsonl"))

each_golden = pytest.mark.parametrize(
    "path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}"
)


def opened(journal: bytes, files: dict[str, bytes] | None = None) -> tuple[SimMachine, HaltRuntime]:
    """A workspace with nothing in it but this journal and these files, opened for work."""
    machine = SimMachine.new()
    for path, data in {"journal.jsonl": journal, **(files or {})}.items():
        machine.disk.make_dirs(f"{machine.root}/{path}".rpartition("/")[0])
        machine.disk.replace(f"{machine.root}/{path}", data, durable=True)
    return machine, machine.open()


def test_this_version_has_its_journals() -> None:
    assert {path.stem for path in (JOURNALS / __version__).glob("*.jsonl")} == set(SCRIPTS)
    assert sum(path.stat().st_size for path in GOLDEN) < 400_000


@each_golden
def test_journal_of_a_version_means_what_it_meant(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    journal = path.read_bytes()
    assert replayed(journal)[1].damage is None
    assert meaning(journal) == expected


@each_golden
def test_journal_of_a_version_is_opened_and_continued(path: Path) -> None:
    journal = path.read_bytes()
    machine, runtime = opened(journal)
    assert machine.journal().startswith(journal)
    runtime.note("written by a later version")
    before = {name: node.state for name, node in replayed(journal)[0].state.nodes.items()}
    # Its files are not here: what was DONE is to be done again, and nothing else has changed.
    moved = {name for name, node in runtime.state.nodes.items() if node.state != before[name]}
    assert {before[name] for name in moved} <= {"DONE", "RUNNING", "PENDING", "READY"}
    runtime.close()
    assert replayed(machine.journal())[1].damage is None


# Journals in the shape that others write


def with_crlf(journal: bytes) -> bytes:
    return journal.replace(b"\n", b"\r\n")


def with_trailing_blanks(journal: bytes) -> bytes:
    return journal.replace(b"\n", b" \t \n").rstrip(b"\n") + b"\n\n  \n"


def with_unknown_fields(journal: bytes) -> bytes:
    lines = [json.loads(line) for line in journal.splitlines()]
    for line in lines:
        line["producer"] = {"name": "halt_rt", "version": [1, 1]}
        line["payload"]["annotation"] = None
        line["entity"]["scope"] = "all"
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def with_numbers_for_seq(journal: bytes) -> bytes:
    lines = [json.loads(line) for line in journal.splitlines()]
    return "".join(f"{json.dumps({**line, 'seq': int(line['seq'])})}\n" for line in lines).encode()


SHAPES = (bytes, with_crlf, with_trailing_blanks, with_unknown_fields, with_numbers_for_seq)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
each_foreign = pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
REPORT = {"artifacts/W1/report.md": b"a"}


@each_foreign
@each_shape
def test_journal_of_another_implementation_is_read_as_unchained(
    path: Path, shape: type[bytes]
) -> None:
    journal = shape(path.read_bytes())
    machine, runtime = opened(journal, REPORT)
    state = runtime.state
    assert (state.task_id, state.goal_statement) == ("t", "started by halt_rt v1.1")
    assert state.unchained == 10
    assert {name: node.state for name, node in state.nodes.items()} == {"W1": "DONE", "W3": "READY"}
    assert runtime.verify_artifact("A-W1")
    assert list(state.steering) == ["ST-1"]
    assert state.ignored_kinds == {"CHECKPOINT_WRITTEN": 1}
    assert machine.journal().startswith(journal.rstrip())
    runtime.close()


@each_foreign
@each_shape
def test_journal_of_another_implementation_is_continued_with_a_chain(
    path: Path, shape: type[bytes]
) -> None:
    journal = shape(path.read_bytes())
    machine, runtime = opened(journal, REPORT)
    runtime.add_node("N1", "ours", outputs=["artifacts/N1/a.txt"])
    runtime.start("N1")
    machine.write("artifacts/N1/a.txt", b"ours")
    runtime.submit("N1")
    runtime.close()
    ours = machine.journal()[len(journal) :]
    assert ours.count(b'"h":"') == ours.count(b"\n") > 4
    replica, scan = replayed(machine.journal())
    assert (scan.damage, scan.unchained) == (None, 10)
    assert replica.state.seq == 10 + ours.count(b"\n")
    assert replica.state.nodes["N1"].state == "DONE"
    again = machine.end()
    runtime = again.open()
    verification = verify_workspace(runtime.engine)
    assert verification.problems == []
    assert verification.checked["unchained"] == 10
    assert runtime.recovered.suspects == ()
    assert runtime.node("W1").state == runtime.node("N1").state == "DONE"
    assert runtime.state.unchained == 10
    runtime.close()


@each_foreign
def test_once_we_have_written_on_a_change_to_the_lines_of_others_is_noticed(path: Path) -> None:
    """They enter the running value of the chain, though they show none of it."""
    machine, runtime = opened(path.read_bytes(), REPORT)
    runtime.note("ours")
    runtime.close()
    changed = machine.journal().replace(b"faster", b"slower")
    damage = replayed(changed)[1].damage
    assert damage is not None
    assert damage.line == 11


@each_foreign
def test_line_that_is_missing_among_those_of_others_is_refused(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    with pytest.raises(CorruptError, match="line 6, byte"):
        opened(b"".join([*lines[:5], *lines[6:]]))


@each_foreign
def test_lines_of_others_after_ours_are_read(path: Path) -> None:
    """As when two implementations take turns; what they cannot do is claim to be chained."""
    machine, runtime = opened(path.read_bytes(), REPORT)
    runtime.close()
    state = runtime.state
    line = {
        "seq": str(state.seq + 1),
        "ts": "2026-03-02T00:00:00+00:00",
        "actor": "coord:main",
        "kind": "NOTE",
        "tx": None,
        "entity": {"type": "task", "id": "t"},
        "payload": {"text": "their turn"},
        "evidence": [],
    }
    machine.disk.open_append(JOURNAL).append(f"{json.dumps(line)}\n".encode())
    again = machine.end()
    runtime = again.open()
    assert runtime.state.unchained == 11
    runtime.note("our turn")
    runtime.close()
    assert replayed(again.journal())[1].damage is None
