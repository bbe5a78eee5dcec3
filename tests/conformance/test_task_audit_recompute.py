"""A record of a task audit, taken again: what holds, holds no longer, or never held (A-4)."""

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance import audited as w
from tests.crash.sim_machine import ROOT, SimMachine
from tests.crash.workloads import call

from perdure.core.codec import to_json
from perdure.core.task_audit import Result
from perdure.core.task_audit_record import digest_of
from perdure.errors import CorruptError, NotFoundError, RefusedError, UsageError
from perdure.service.task_audit_recompute import recompute_answer
from perdure.service.task_audits import audit_answer
from perdure.service.tasks import Service
from perdure.testing import Killed

Record = dict[str, Any]


@pytest.fixture
def machine() -> SimMachine:
    return w.lived()


def service(machine: SimMachine, actor: str = "coordinator:main") -> Service:
    return Service(ROOT, actor=actor, world=machine.world)


def taken(machine: SimMachine) -> Record:
    """A record as it is printed."""
    found: Record = json.loads(to_json(audit_answer(service(machine))["record"]))
    return found


def again(machine: SimMachine, record: Any) -> dict[str, Any]:
    return recompute_answer(service(machine), "audit.json", json.dumps(record).encode())


def standing(answer: dict[str, Any]) -> dict[str, str]:
    """Every item that does not hold."""
    return {one["item"]: one["standing"] for one in answer["items"] if one["standing"] != "holds"}


def item(record: Record, name: str) -> Record:
    return next(entry for entry in record["items"] if entry["item"] == name)


def goes_on(machine: SimMachine) -> None:
    """More is committed, so that the record is of a prefix."""
    runtime = machine.open()
    call(machine, runtime, "note", text="later")
    call(machine, runtime, "add", node="LATE")
    runtime.close()


def on_record(machine: SimMachine, record: Record) -> str:
    """Put it into the journal; the event that holds it."""
    return str(service(machine).call("record_audit", {"record": record})["committed"])


# What holds


@pytest.mark.parametrize(
    "shape",
    [
        lambda record: record,
        lambda record: {"schema_version": 1, "data": record},
        lambda record: {"schema_version": 1, "data": {"record": record, "exit_code": 0}},
    ],
    ids=["bare", "as printed", "in an answer"],
)
def test_a_true_record_holds_in_every_shape(
    machine: SimMachine, shape: Callable[[Record], Any]
) -> None:
    answer = again(machine, shape(taken(machine)))
    assert (standing(answer), answer["holds"], answer["exit_code"]) == ({}, True, 0)
    assert answer["counts"]["holds"] == 32


def test_a_true_record_holds_when_the_task_has_gone_on(machine: SimMachine) -> None:
    record = taken(machine)
    goes_on(machine)
    answer = again(machine, record)
    assert (standing(answer), answer["exit_code"]) == ({}, 0)


def test_a_record_of_some_items_is_recomputed_for_those(machine: SimMachine) -> None:
    record = json.loads(to_json(audit_answer(service(machine), items=["A9", "A2.2"])["record"]))
    answer = again(machine, record)
    assert {one["item"] for one in answer["items"]} == {"A2.2", "A9.1", "A9.2", "A9.3"}
    assert answer["holds"]


def test_a_record_that_says_fail_holds_as_long_as_it_is_so(machine: SimMachine) -> None:
    w.put(machine, "artifacts/N1/a.txt", b"other")
    record = taken(machine)
    assert not record["passed"]
    assert again(machine, record)["holds"]


# What holds no longer


def test_what_the_disk_has_lost_since_holds_no_longer(machine: SimMachine) -> None:
    record = taken(machine)
    w.gone(machine, "artifacts/N1/a.txt")
    answer = again(machine, record)
    assert standing(answer) == {"A2.2": "holds no longer"}
    assert answer["exit_code"] == 1
    assert "missing" in next(one["why"] for one in answer["items"] if one["item"] == "A2.2")


def test_what_was_put_right_since_holds_no_longer(machine: SimMachine) -> None:
    w.put(machine, "artifacts/N1/a.txt", b"other")
    record = taken(machine)
    w.put(machine, "artifacts/N1/a.txt", b"a")
    assert standing(again(machine, record)) == {"A2.2": "holds no longer"}


# What never held


def test_a_verdict_that_the_journal_contradicts_never_held(machine: SimMachine) -> None:
    """Somebody wrote PASS over it, and put results in that look like it."""
    honest = taken(machine)
    w.forged(machine, _no_reason)
    record = taken(machine)
    assert item(record, "A11.2")["verdict"] == "FAIL"
    record["items"][record["items"].index(item(record, "A11.2"))] = item(honest, "A11.2")
    record["passed"], record["counts"] = True, honest["counts"]
    answer = again(machine, record)
    assert standing(answer) == {"A11.2": "never held"}
    assert answer["never_held"][0] == {
        "item": "A11.2",
        "said": "PASS",
        "is": "FAIL",
        "why": answer["items"][-2]["why"],
    }


def _no_reason(event: Any) -> None:
    if event.payload.get("op") == "cancel":
        event.payload["rationale"] = ""


def _as_pass(record: Record) -> None:
    record["items"][0]["verdict"] = "FAIL"


def _no_method(record: Record) -> None:
    item(record, "A1.2")["method"] = ""


def _fewer_results(record: Record) -> None:
    item(record, "A1.2")["results"] = []


def _other_results(record: Record) -> None:
    item(record, "A1.2")["results"][0]["ref"] = "contracts/inv-none.json"


def _hidden_failure(record: Record) -> None:
    entry = item(record, "A1.2")
    entry["results"][0]["ok"] = False
    entry["failed"] = 1


def _nothing_looked_at(record: Record) -> None:
    entry = item(record, "A1.2")
    entry |= {"results": [], "looked_at": 0, "digest": ""}


def _other_bytes(record: Record) -> None:
    """It lists a checksum that was never registered, and signs that."""
    entry = item(record, "A2.2")
    entry["results"][0]["note"] = "0" * 16
    entry["digest"] = _digest(entry["results"])


def _digest(results: list[Record]) -> str:
    return digest_of(Result(one["ref"], one["ok"], one.get("note", "")) for one in results)


def _unknown_item(record: Record) -> None:
    item(record, "A1.2")["item"] = "A1.9"


@pytest.mark.parametrize(
    ("tamper", "name"),
    [
        (_as_pass, "A1.1"),
        (_no_method, "A1.2"),
        (_fewer_results, "A1.2"),
        (_other_results, "A1.2"),
        (_hidden_failure, "A1.2"),
        (_nothing_looked_at, "A1.2"),
        (_other_bytes, "A2.2"),
        (_unknown_item, "A1.9"),
    ],
)
def test_a_record_that_contradicts_itself_never_held(
    machine: SimMachine, tamper: Callable[[Record], None], name: str
) -> None:
    record = taken(machine)
    tamper(record)
    found = standing(again(machine, record))
    assert found.pop(name) == "never held"
    assert set(found) <= {"record"}  # and then its counts are of other items


@pytest.mark.parametrize(
    "change",
    [{"items": []}, {"counts": {"PASS": 99, "FAIL": 0, "N/A": 0}}],
    ids=["a bare score", "other counts"],
)
def test_a_record_whose_sum_is_not_that_of_its_items_never_held(
    machine: SimMachine, change: Record
) -> None:
    record = {**taken(machine), **change}
    answer = again(machine, record)
    assert standing(answer) == {"record": "never held"}
    assert answer["exit_code"] == 1


# Other tasks and other histories


def test_a_record_of_another_task_is_refused(machine: SimMachine) -> None:
    record = taken(machine)
    with pytest.raises(RefusedError, match="of task other") as caught:
        again(machine, {**record, "task_id": "other"})
    assert caught.value.code == "another_task"
    with pytest.raises(RefusedError, match="begun"):
        again(machine, {**record, "created": "2001-01-01T00:00:00+00:00"})


@pytest.mark.parametrize("change", [{"h": "0" * 16}, {"seq": 10_000}, {"seq": 1}])
def test_a_record_of_another_history_is_refused_with_the_seq(
    machine: SimMachine, change: Record
) -> None:
    record = {**taken(machine), **change}
    with pytest.raises(RefusedError, match=f"at J-{record['seq']} ") as caught:
        again(machine, record)
    assert caught.value.code == "another_history"
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b"{not json", b'{"score": "14/14 PASS"}', b"[" * 100_000]
)
def test_what_is_no_record_is_refused(machine: SimMachine, data: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        recompute_answer(service(machine), "audit.json", data)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("snapshot", [True, False], ids=["with a snapshot", "without"])
def test_a_journal_that_is_damaged_before_the_end_of_the_record_is_told(
    machine: SimMachine, *, snapshot: bool
) -> None:
    record = taken(machine)
    if not snapshot:
        machine.disk.unlink(f"{ROOT}/.snapshot.json", durable=True)
    w.flipped(machine, "journal.jsonl")
    with pytest.raises(CorruptError) as caught:
        again(machine, record)
    assert caught.value.exit_code == 6


# On record, and corrected


def test_a_record_on_record_is_recomputed_by_its_event(machine: SimMachine) -> None:
    ref = on_record(machine, taken(machine))
    goes_on(machine)
    answer = recompute_answer(service(machine), ref)
    assert (answer["holds"], answer["exit_code"], answer["seq"]) == (True, 0, int(ref[2:]) - 1)


def test_an_event_that_is_no_record_is_refused(machine: SimMachine) -> None:
    for ref in ("J-1", "J-100000"):
        with pytest.raises(NotFoundError) as caught:
            recompute_answer(service(machine), ref)
        assert caught.value.code == "unknown_record"


def false_record(machine: SimMachine) -> str:
    """A record that says PASS of a cancellation without a reason, on record."""
    honest = taken(machine)
    w.forged(machine, _no_reason)
    record = taken(machine)
    record["items"][record["items"].index(item(record, "A11.2"))] = item(honest, "A11.2")
    record["passed"], record["counts"] = True, honest["counts"]
    return on_record(machine, record)


def correct(machine: SimMachine, ref: str, reason: str = "it was written by hand") -> str:
    answer = recompute_answer(service(machine), ref)
    args = {
        "target": ref,
        "record": answer["recomputed"],
        "wrong": answer["never_held"],
        "reason": reason,
    }
    return str(service(machine).call("correct_audit", args)["committed"])


def test_a_false_record_is_corrected_and_kept(machine: SimMachine) -> None:
    ref = false_record(machine)
    before = machine.journal()
    amendment = correct(machine, ref)
    after = machine.journal()
    assert after.startswith(before)  # the original stays, byte for byte
    payload = json.loads(after.splitlines()[-1])["payload"]
    assert payload["target"] == ref
    assert payload["before"] == {"items": [{"item": "A11.2", "verdict": "PASS"}]}
    assert payload["after"]["items"][0]["verdict"] == "FAIL"
    assert payload["after"]["items"][0]["why"]
    assert payload["reason"] == "it was written by hand"
    closing = w.state_of(machine).state.closing
    assert (closing.audit, closing.corrected) == (ref, amendment)
    assert correct(machine, ref) == amendment  # once is enough
    assert service(machine).show(ref)["corrected_by"] == amendment
    told = item(taken(machine), "A11.3")["results"]
    assert f"task audit; corrected by {amendment}" in [one.get("note") for one in told]


def test_a_bare_score_on_record_is_corrected_and_then_no_failure(machine: SimMachine) -> None:
    ref = on_record(machine, taken(machine))
    seq = int(ref[2:])

    def bare(event: Any) -> None:
        if event.seq == seq:
            event.payload["record"] = {"score": "14/14 PASS"}

    w.forged(machine, bare)
    assert list(w.failing(w.audited(machine).record)) == ["A11.3"]
    answer = recompute_answer(service(machine), ref)
    assert standing(answer) == {"record": "never held"}
    correct(machine, ref)
    assert w.failing(w.audited(machine).record) == {}


def test_what_was_not_false_is_not_corrected(machine: SimMachine) -> None:
    ref = on_record(machine, taken(machine))
    w.gone(machine, "artifacts/N1/a.txt")  # it holds no longer, and was true
    before = machine.journal()
    with pytest.raises(RefusedError) as caught:
        correct(machine, ref)
    assert caught.value.code == "nothing_false"
    assert machine.journal() == before


def test_a_correction_says_only_what_the_record_said(machine: SimMachine) -> None:
    ref = on_record(machine, taken(machine))
    wrong = [{"item": "A1.1", "said": "FAIL", "is": "PASS", "why": "made up"}]
    with pytest.raises(RefusedError) as caught:
        service(machine).call("correct_audit", {"target": ref, "wrong": wrong, "reason": "x"})
    assert caught.value.code == "not_what_it_says"
    with pytest.raises(NotFoundError):
        service(machine).call("correct_audit", {"target": "J-1", "wrong": wrong, "reason": "x"})


def test_a_correction_needs_a_reason(machine: SimMachine) -> None:
    with pytest.raises(UsageError):
        correct(machine, false_record(machine), reason=" ")


def test_recomputing_changes_nothing(machine: SimMachine) -> None:
    record = copy.deepcopy(taken(machine))
    before = machine.disk.tree()
    again(machine, record)
    assert machine.disk.tree() == before


def test_a_kill_at_any_step_of_a_correction_leaves_it_whole_or_not_at_all(
    machine: SimMachine,
) -> None:
    ref = false_record(machine)
    for cut in itertools.count():
        dying = machine.next(machine.disk.survive_kill(cut_after=cut), power_cut=False)
        try:
            correct(dying, ref)
        except Killed:
            alive = dying.next(dying.disk.survive_kill(), power_cut=False)
            runtime = alive.open()  # recovery, which sets a torn tail aside
            runtime.close()
            correct(alive, ref)
            assert amendments(alive, ref) == 1
        else:
            break
    assert cut > 2
    assert amendments(dying, ref) == 1


def amendments(machine: SimMachine, ref: str) -> int:
    """How many corrections of this record there are."""
    found = (json.loads(line)["payload"] for line in machine.journal().splitlines())
    return sum((one.get("op"), one.get("target")) == ("correct_audit", ref) for one in found)
