"""The end of a task: final audit, repair, archive, acceptance, last word (FST-3, MB-2)."""

import os
import stat

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.core import closing_commands as k
from perdure.core.dispatching import Parent
from perdure.errors import (
    CorruptError,
    HaltError,
    RefusedError,
    StorageError,
    TransitionError,
    UsageError,
)
from perdure.ports import FileLock
from perdure.runtime.calls import perform
from perdure.storage.disk import RealDisk


def finished(host: Host) -> HaltRuntime:
    rt = host.open()
    rt.add_node("N1", "count the pages", outputs=["artifacts/N1/out.txt"])
    host.finish(rt, "N1")
    return rt


def archive(rt: HaltRuntime) -> dict[str, object]:
    return perform(rt.engine, "archive", {"scope": "project:p"})


def accept(rt: HaltRuntime) -> dict[str, object]:
    with rt.engine.acting_as("sponsor:ann"):
        return perform(rt.engine, "accept", {"text": "as ordered"})


def test_fst_3_one_commit_holds_audit_proposals_hand_off_and_end(host: Host) -> None:
    with finished(host) as rt:
        told = archive(rt)
        events = [e for e in rt.events() if e.tx == rt.events()[-1].tx]
        kinds = [(e.kind, e.payload.get("op") or e.payload.get("edge")) for e in events]
        assert kinds == [
            ("NOTE", "task_audit"),
            ("NOTE", "memory_proposals"),
            ("NOTE", "handoff"),
            ("STATE_TRANSITION", "T10"),
            ("INSTANCE_ENDED", None),
        ]
        record = events[0].payload["record"]
        assert record["passed"] is True
        assert record["seq"] == events[0].seq - 1, "it is of all that had been said before it"
        assert "artifacts/N1/out.txt" in events[2].payload["text"]
        assert (told["fsm_task"], told["sub_state"]) == ("ARCHIVED", "PROCESS_COMPLETE")
        assert rt.state.terminal is True
        assert archive(rt)["repeated"] is True


def test_t07_nothing_is_archived_that_is_open(host: Host) -> None:
    with finished(host) as rt:
        rt.add_node("N2", "one more")
        before = host.read()
        with pytest.raises(TransitionError) as caught:
            archive(rt)
        assert caught.value.rule == "T07"
        assert host.read() == before


def test_t10_nobody_archives_without_an_audit_of_this_very_moment(host: Host) -> None:
    with finished(host) as rt:
        told = perform(rt.engine, "archive", {"scope": "project:p"})
        record = rt.events()[int(str(told["committed"])[2:]) - 1].payload["record"]
    with host.open(pid=101) as rt:
        assert rt.state.fsm_task == "ARCHIVED"
        with pytest.raises(TransitionError):
            rt.engine.execute(k.ArchiveTask(record, (), "again"))


NOTHING_SEEN = {
    "item": "A1.2", "title": "t", "rule": "INV-1", "verdict": "N/A", "method": "m", "why": "w",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code"),
    [({"passed": False}, "audit_failed"), ({"seq": 3}, "audit_outdated"),
     ({"task_id": "T2"}, "another_task"), ({"seq": 10_000}, "another_history")],
)  # fmt: skip
def test_fst_3_a_record_that_does_not_say_so_archives_nothing(
    host: Host, change: dict[str, object], code: str
) -> None:
    with finished(host) as rt:
        rt.move_task("EXECUTING")
        rt.move_task("FINAL_AUDIT")
        with rt.engine.writing():
            from_now = {
                "task_id": "T1", "created": rt.state.created, "tier": 1, "seq": rt.state.seq,
                "h": "0" * 16, "audited_at": "", "auditor": "x", "passed": True,
                "counts": {"N/A": 1}, "items": [NOTHING_SEEN],
            }  # fmt: skip
            with pytest.raises(RefusedError) as caught:
                rt.engine.execute(k.ArchiveTask({**from_now, **change}, (), "note"))
        assert caught.value.code == code
        assert rt.state.fsm_task == "FINAL_AUDIT"


def test_t09_a_defect_becomes_a_node_that_is_worked_off_and_then_it_passes(host: Host) -> None:
    with finished(host) as rt:
        path = os.path.join(host.workspace, "artifacts/N1/out.txt")
        with open(path, "rb") as file:
            good = file.read()
        with open(path, "wb") as file:
            file.write(b"something else")
        told = archive(rt)
        assert told["exit_code"] == 1
        assert told["repairs"] == {"A2.2": "repair-A2.2"}
        assert rt.state.fsm_task == "DECOMPOSING"
        assert "A-N1" in rt.node("repair-A2.2").spec.goal
        with pytest.raises(TransitionError):
            archive(rt)  # the repair is open
        with open(path, "wb") as file:
            file.write(good)
        host.finish(rt, "repair-A2.2")
        assert archive(rt)["sub_state"] == "PROCESS_COMPLETE"


def test_t09_the_same_defect_again_gets_a_node_of_its_own_once_the_first_is_closed(
    host: Host,
) -> None:
    with finished(host) as rt:
        path = os.path.join(host.workspace, "artifacts/N1/out.txt")
        with open(path, "wb") as file:
            file.write(b"something else")
        archive(rt)
        host.finish(rt, "repair-A2.2")
        told = archive(rt)
        assert told["repairs"] == {"A2.2": "repair-A2.2.r2"}


def test_a_damaged_journal_is_not_archived_and_nothing_is_written(host: Host) -> None:
    finished(host).close()
    path = os.path.join(host.workspace, "journal.jsonl")
    data = bytearray(host.read())
    data[200] ^= 1
    with host.attach(actor="coordinator:x") as rt:
        with open(path, "r+b") as file:
            file.write(bytes(data))
        with pytest.raises(CorruptError):
            archive(rt)
    assert host.read() == bytes(data)


def test_only_the_sponsor_accepts_and_only_what_is_archived(host: Host) -> None:
    with finished(host) as rt:
        with pytest.raises(TransitionError):
            accept(rt)
        archive(rt)
        with pytest.raises(RefusedError) as caught:
            perform(rt.engine, "accept", {"text": "fine"})
        assert caught.value.rule == "AU-1"
        assert accept(rt)["sub_state"] == "CONTENT_ACCEPTED"
        assert accept(rt)["repeated"] is True


def test_the_last_word_takes_an_acceptance_and_seals_every_file(host: Host) -> None:
    rt = finished(host)
    archive(rt)
    with pytest.raises(RefusedError) as caught:
        perform(rt.engine, "close", {})
    assert caught.value.code == "not_accepted"
    accept(rt)
    assert perform(rt.engine, "close", {})["sub_state"] == "TASK_CLOSED"
    rt.close()
    for folder, _, files in os.walk(host.workspace):
        for name in (*files, "."):
            mode = os.stat(os.path.join(folder, name)).st_mode
            assert not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH), name
    with host.attach(actor="coordinator:x") as rt:
        assert rt.status()["all_integrity_pass"] is True
        again = perform(rt.engine, "close", {})
        assert again["repeated"] is True


def test_fst_3_nothing_is_written_to_a_closed_task(host: Host) -> None:
    with finished(host) as rt:
        archive(rt)
        rt.note("archived tasks take notes")
        accept(rt)
        perform(rt.engine, "close", {})
        before = host.read()
        for attempt in (
            lambda: rt.note("too late"),
            lambda: rt.decision("D1", "too late"),
            lambda: rt.steering("S1", "too late"),
            lambda: rt.add_node("N9", "too late"),
        ):
            with pytest.raises(HaltError) as caught:
                attempt()
            assert caught.value.rule == "FST-3"
        assert host.read() == before


def test_an_archived_task_takes_no_work_and_recovers_to_where_it_is(host: Host) -> None:
    with finished(host) as rt:
        archive(rt)
        with pytest.raises(RefusedError) as caught:
            rt.add_node("N2", "more")
        assert caught.value.code == "task_archived"
    length = len(host.read())
    with host.open(pid=101) as rt:
        assert rt.state.closing.sub_state == "PROCESS_COMPLETE"
    assert len(host.read()) == length


def test_mb_2_what_failed_and_what_came_through_is_proposed_with_its_evidence(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "fetch the pages", outputs=["artifacts/N1/out.txt"])
        for _ in range(2):
            rt.start("N1")
            rt.fail("N1", "transient-agent", "ran out of words")
        rt.retry("N1", "smaller pieces", method="pieces")
        host.finish(rt, "N1")
        told = archive(rt)
        proposals = told["proposals"]
        assert isinstance(proposals, list)
        kinds = {one["kind"]: one for one in proposals}
        assert "'pieces' came through" in kinds["method"]["statement"]
        assert "ran out of words" in kinds["pitfall"]["statement"]
        for one in proposals:
            assert one["scope"] == "project:p"
            for ref in one["evidence"]:
                task, _, seq = ref.partition("#J-")
                assert task == "T1"
                assert 1 <= int(seq) <= rt.state.seq


def test_mb_2_a_task_without_lessons_proposes_nothing_and_says_so(host: Host) -> None:
    with finished(host) as rt:
        archive(rt)
        ref = rt.state.closing.proposals
        note = rt.events()[int(ref[2:]) - 1]
        assert note.payload["proposals"] == []


def sealed(host: Host) -> None:
    with finished(host) as rt:
        archive(rt)
        accept(rt)
        perform(rt.engine, "close", {})


class WithoutRights(RealDisk):
    """The real disk as somebody sees it whom permissions bind, whoever runs the tests."""

    def lock(self, path: str) -> FileLock:
        seen = os.stat(path)
        if not seen.st_mode & stat.S_IWUSR:
            raise StorageError(f"{path}: EACCES.", code="permission_denied", fix="None.")
        return super().lock(path)


def test_fst_3_a_sealed_task_says_that_it_is_closed_and_not_that_a_permission_lacks(
    host: Host,
) -> None:
    sealed(host)
    before = host.read()
    world = host.world(101)._replace(disk=WithoutRights())
    for open_it in (HaltRuntime.resume, HaltRuntime):
        with pytest.raises(RefusedError) as caught:
            open_it(host.workspace, world=world)
        assert (caught.value.code, caught.value.rule) == ("task_closed", "FST-3")
    rt = HaltRuntime.attach(host.workspace, actor="coordinator:x", world=world)
    with pytest.raises(RefusedError) as caught:
        rt.note("too late")
    assert caught.value.code == "task_closed"
    assert perform(rt.engine, "close", {})["repeated"] is True
    assert rt.status()["all_integrity_pass"] is True
    assert host.read() == before


def test_closing_again_completes_a_mirror_that_a_crash_left_behind_before_it_seals(
    workspace: str,
) -> None:
    host = Host(workspace)
    with HaltRuntime(host.workspace, "T1", tier=2, world=host.world()) as rt:
        rt.add_node("N1", "count", outputs=["artifacts/N1/out.txt"], verification_level="V1")
        host.finish(rt, "N1")
        archive(rt)
        accept(rt)
        rt.engine.execute(k.CloseTask())  # and no further: nothing is sealed
    mirror = os.path.join(host.workspace, "journal-mirror.jsonl")
    whole = host.read()
    os.truncate(mirror, whole.rstrip(b"\n").rfind(b"\n") + 1)
    with host.attach(pid=101, actor="coordinator:x") as rt:
        assert perform(rt.engine, "close", {})["repeated"] is True
    assert host.read("journal-mirror.jsonl") == whole == host.read()


def test_fst_3_what_an_archived_task_has_lost_is_reported_and_reopens_nothing(host: Host) -> None:
    with finished(host) as rt:
        archive(rt)
    os.unlink(os.path.join(host.workspace, "artifacts/N1/out.txt"))
    before = host.read()
    with host.resume(pid=101) as rt:
        assert rt.recovered.suspects == ("N1",)
        assert rt.node("N1").state == "DONE"
        assert rt.state.closing.sub_state == "PROCESS_COMPLETE"
    assert host.read() == before


def test_an_archived_task_whose_documents_have_changed_is_opened_and_tells_it(host: Host) -> None:
    with finished(host) as rt:
        host.write("docs-of-ours.txt", "one")
        perform(rt.engine, "doc", {"path": "docs-of-ours.txt", "purpose": "what it rests on"})
        archive(rt)
    host.write("docs-of-ours.txt", "another")
    with host.open(pid=101) as rt:
        assert rt.state.fsm_task == "ARCHIVED"
        assert rt.state.docs["docs-of-ours.txt"].stale


def test_fst_3_whoever_dies_after_the_last_word_leaves_nothing_to_write_for_the_next(
    host: Host,
) -> None:
    rt = finished(host)
    archive(rt)
    accept(rt)
    rt.engine.execute(k.CloseTask())
    before = host.read()
    host.die(rt)
    with host.resume(pid=101) as rt:
        assert rt.recovered.found
        assert rt.state.closing.sub_state == "TASK_CLOSED"
    assert host.read() == before


def test_fst_3_words_for_a_closed_task_stay_where_they_were_left(host: Host) -> None:
    with finished(host) as rt:
        archive(rt)
        accept(rt)
        rt.engine.execute(k.CloseTask())
    host.write("steering/write-here.md", "one more thing")
    with host.resume(pid=101) as rt:
        with pytest.raises(RefusedError) as caught:
            perform(rt.engine, "note", {"text": "x"})
        assert caught.value.code == "task_closed"
    assert host.read("steering/write-here.md") == b"one more thing"
    assert not os.path.exists(os.path.join(host.workspace, "steering/taken"))


def test_the_hand_off_says_what_was_made_what_was_given_up_and_how_to_prove_it(
    host: Host,
) -> None:
    with finished(host) as rt:
        rt.add_node("N2", "the hard part")
        rt.start("N2")
        rt.fail("N2", "permanent-spec", "no such page")
        rt.add_node("N3", "the soft part", successor_of="N2")
        host.finish(rt, "N3")
        digest = rt.registry["A-N1"].integrity.value[:16]
        said = str(archive(rt)["handoff"])
    assert f"artifacts/N1/out.txt (A-N1, sha256 {digest})" in said
    assert "N2 (QUARANTINED, N3 took its place): no such page" in said
    assert "perdure verify" in said


def test_a_scope_that_is_none_archives_nothing(host: Host) -> None:
    with finished(host) as rt:
        before = host.read()
        with pytest.raises(UsageError) as caught:
            perform(rt.engine, "archive", {"scope": "projekt:p"})
        assert caught.value.code == "bad_scope"
        assert host.read() == before


def test_fst_4_a_nested_task_is_archived_with_the_one_above_it(host: Host) -> None:
    parent = Parent("T0", "N7", "inv-1", 1, ())
    with HaltRuntime(host.workspace, "T1", parent=parent, world=host.world()) as rt:
        rt.add_node("N1", "count", outputs=["artifacts/N1/out.txt"])
        host.finish(rt, "N1")
        before = host.read()
        with pytest.raises(TransitionError) as caught:
            archive(rt)
        assert caught.value.rule == "FST-4"
        assert host.read() == before
