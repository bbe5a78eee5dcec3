"""Opening a job: new, again, after a crash, after another program, and with damage in it."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.jobs.sim_host import AT, NAME, ROOT, SimHost, line, our_state

from perdure.errors import RefusedError, StorageError, UsageError
from perdure.jobs.inspection import verify_job
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash, line_bytes_max
from perdure.jobs.records import AsOf, name_chars_max
from perdure.jobs.scan import bad_lines_kept_max, group_bytes_max
from perdure.testing import SimDisk, sim_world


def state_of(**fields: Any) -> bytes:
    """A state.json of another implementation: the fields of the contract and no other."""
    state = {
        "job": NAME,
        "version": 1,
        "started_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-02T00:00:00Z",
        "cursor": {"page": 7},
        "completed": {},
        "errors": [],
        "stats": {"processed": 0, "failed": 0, "resumes": 4},
        "finished_at": None,
    }
    return json.dumps({**state, **fields}).encode()


def whats(job: CheckpointedJob) -> list[str]:
    return [notice.what for notice in job.notices]


# New jobs


def test_a_new_job_is_made_with_its_log_first_and_every_name_safe(host: SimHost) -> None:
    job = host.open()
    steps = host.steps()
    born = steps.index("rename .findings.jsonl.tmp-1-1")
    assert steps[born + 1] == "sync_dir job"
    assert steps.index("mkdir job") < born < steps.index("rename .state.json.tmp-1-2")
    assert {"mkdir data", "mkdir job", "sync_dir data"} <= set(steps)
    assert host.read("findings.jsonl") == b""
    assert host.state()["completed"] == {}
    assert host.summary()
    assert sorted(name for name in host.names() if name[0] != ".") == [
        "SUMMARY.md", "findings.jsonl", "state.json"
    ]  # fmt: skip
    assert job.state["stats"] == {"processed": 0, "failed": 0, "resumes": 0}
    assert (job.cursor, job.errors, job.notices) == (None, [], ())


def test_a_directory_with_other_files_becomes_a_job_and_keeps_them(host: SimHost) -> None:
    host.write("notes.txt", b"mine")
    host.write(".notes.txt.tmp-1", b"mine too")
    host.open().close()
    assert host.read("notes.txt") == b"mine"
    assert host.read(".notes.txt.tmp-1") == b"mine too"


@pytest.mark.parametrize("name", ["", "x" * (name_chars_max + 1), "two\nlines", "\ud800", None, 7])
def test_a_job_without_a_proper_name_is_refused_before_anything_is_made(name: Any) -> None:
    disk = SimDisk()
    with pytest.raises(UsageError, match="bad_job_name"):
        CheckpointedJob(ROOT, name, world=sim_world(disk))
    assert disk.log == []


def test_a_file_in_the_place_of_the_directory_is_refused(host: SimHost) -> None:
    host.disk.write(ROOT, b"a file")
    with pytest.raises(RefusedError, match="not_a_directory"):
        host.open()


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_log_that_is_no_file_of_its_own_is_refused_and_nothing_is_made(
    host: SimHost, kind: str
) -> None:
    host.write("notes.txt", b"")
    if kind == "link":
        host.disk.symlink("notes.txt", host.path("findings.jsonl"))
    else:
        host.disk.make_dirs(host.path("findings.jsonl"))
    with pytest.raises(RefusedError, match="not_a_log"):
        host.open()
    assert host.names() == ["findings.jsonl", "notes.txt"]


def test_a_directory_reached_through_a_link_is_the_same_job(host: SimHost) -> None:
    host.open().record_finding("a")
    host.disk.symlink(ROOT, "/data/alias")
    job = CheckpointedJob("/data/alias", NAME, world=host.world)
    assert job.is_done("a")
    assert job.directory == "/data/alias"


# Opening again


def test_opening_again_counts_as_a_resume_and_keeps_everything(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    job.record_error("b", "failed")
    job.set_cursor({"page": 2})
    job.close()
    started = job.state["started_at"]
    for resumes in (1, 2, 3):
        host.kill()
        job = host.open()
        assert job.state["stats"] == {"processed": 1, "failed": 1, "resumes": resumes}
        assert job.is_done("a")
        assert [(entry.key, entry.attempts) for entry in job.errors] == [("b", 1)]
        assert job.cursor == {"page": 2}
        assert job.state["started_at"] == started
        assert job.notices == ()


def test_an_unfinished_creation_is_no_resume(host: SimHost) -> None:
    host.disk.make_dirs(ROOT)
    host.write(".lock", b"")
    host.write(".findings.jsonl.tmp-1-1", b"")
    assert host.open().state["stats"]["resumes"] == 0
    assert not [name for name in host.names() if ".tmp-" in name]


def test_a_killed_process_loses_nothing_it_was_told_is_done(host: SimHost) -> None:
    job = host.open()
    for number in range(100):
        job.record_finding(str(number))
    job.record_error("bad", "failed")
    host.kill()
    job = host.open()
    assert job.processed == 100
    assert job.errors[0].attempts == 1
    assert host.state()["stats"]["resumes"] == 1


def test_the_last_findings_are_shown_again_after_opening(host: SimHost) -> None:
    job = host.open()
    for number in range(30):
        job.record_finding(f"item-{number}", {"n": number})
    host.kill()
    host.open()
    shown = host.summary()
    assert "item-9`" not in shown.replace('"', "")
    assert "item-10" in shown
    assert "item-29" in shown


# What is read


def test_with_a_fresh_checkpoint_only_the_tail_is_read(
    host: SimHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = host.open()
    for number in range(200):
        job.record_finding(f"item-{number}", {"text": "x" * 2_000})
    job.close()
    before = host.state()["as_of"]["offset"]
    job = host.open()
    job.record_finding("one more")
    host.kill()
    seen: list[int] = []
    read_chunks = SimDisk.read_chunks

    def noted(disk: SimDisk, path: str, chunk_bytes: int = 1 << 20, offset: int = 0) -> Any:
        if path.endswith("findings.jsonl"):
            seen.append(offset)
        return read_chunks(disk, path, chunk_bytes, offset)

    monkeypatch.setattr(SimDisk, "read_chunks", noted)
    assert host.open().processed == 201
    assert seen[0] >= before


@pytest.mark.parametrize(
    "as_of",
    [
        AsOf(10_000, 50, "0" * 16, 0),
        AsOf(90, 90, "0" * 16, 0),
        AsOf(50, 50, "", 0),
        AsOf(0, 0, "", 0),
        AsOf(10, 20, "", 0),
        None,
    ],
)
def test_where_the_checkpoint_does_not_match_the_log_everything_is_read(
    host: SimHost, as_of: AsOf | None
) -> None:
    host.write("findings.jsonl", line("a") + line("b"))
    host.write("state.json", our_state(as_of))
    job = host.open()
    assert (job.is_done("a"), job.is_done("b")) == (True, True)


def test_what_is_done_is_the_union_of_the_state_and_the_log(host: SimHost) -> None:
    host.write("findings.jsonl", line("a"))
    host.write("state.json", state_of(completed={item_hash("b"): AT}))
    job = host.open()
    assert set(job.state["completed"]) == {item_hash("a"), item_hash("b")}


def test_a_job_of_another_implementation_is_continued(host: SimHost) -> None:
    error = {"key": "x", "hash": "whatever", "error": "no", "attempts": 2, "last_at": AT}
    done = {"key": "a", "hash": item_hash("a"), "error": "no", "attempts": 1, "last_at": AT}
    host.write("findings.jsonl", line("a", title="A"))
    host.write("state.json", state_of(errors=[error, done]))
    job = host.open()
    assert job.cursor == {"page": 7}
    assert [(entry.key, entry.hash) for entry in job.errors] == [("x", item_hash("x"))]
    assert job.state["stats"] == {"processed": 1, "failed": 1, "resumes": 5}
    assert job.state["started_at"] == "2020-01-01T00:00:00Z"
    job.record_finding("b")
    assert [found["_key"] for found in host.log()] == ["a", "b"]


def test_a_forged_hash_is_ignored(host: SimHost) -> None:
    forged = line("a").replace(item_hash("a").encode(), item_hash("b").encode())
    host.write("findings.jsonl", forged)
    job = host.open()
    assert (job.is_done("a"), job.is_done("b")) == (True, False)


def test_a_line_with_a_hash_alone_counts(host: SimHost) -> None:
    host.write("findings.jsonl", b'{"_hash":"%s"}\n' % item_hash("a").encode())
    assert host.open().is_done("a")


def test_blank_lines_line_ends_of_windows_and_a_byte_order_mark_are_tolerated(
    host: SimHost,
) -> None:
    text = b"\xef\xbb\xbf" + line("a")[:-1] + b"\r\n\r\n  \n" + line("b \u2028 c")
    host.write("findings.jsonl", text)
    job = host.open()
    assert (job.processed, job.notices) == (2, ())
    assert host.read("findings.jsonl") == text


def test_a_state_of_another_job_is_refused_and_nothing_is_changed(host: SimHost) -> None:
    host.write("findings.jsonl", line("a") + b"torn")
    host.write("state.json", state_of(job="other"))
    before = host.disk.tree()
    with pytest.raises(RefusedError, match="other_job") as caught:
        host.open()
    assert "'other'" in str(caught.value)
    after = host.disk.tree()
    assert {name: after[name] for name in before} == before
    CheckpointedJob(ROOT, "other", world=host.beside()).close()


def test_a_state_of_a_later_version_is_refused(host: SimHost) -> None:
    host.write("state.json", state_of(version=2))
    with pytest.raises(RefusedError, match="newer_job"):
        host.open()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"job":7}', b"null"])
def test_a_state_that_cannot_be_read_is_kept_aside_and_built_anew(
    host: SimHost, data: bytes
) -> None:
    host.write("findings.jsonl", line("a") + line("b"))
    host.write("state.json", data)
    job = host.open()
    assert whats(job) == ["state_corrupt"]
    assert job.processed == 2
    assert job.state["started_at"] == AT
    (kept,) = [name for name in host.names() if name.startswith("state.json.corrupt-")]
    assert host.read(kept) == data
    assert kept in job.notices[0].message
    assert set(host.state()["completed"]) == {item_hash("a"), item_hash("b")}


def test_several_bad_states_are_all_kept(host: SimHost) -> None:
    for data in (b"one", b"two"):
        host.write("state.json", data)
        host.open().close()
    kept = [name for name in host.names() if name.startswith("state.json.corrupt-")]
    assert sorted(map(host.read, kept)) == [b"one", b"two"]


def test_a_missing_state_is_built_from_the_log(host: SimHost) -> None:
    host.write("findings.jsonl", line("a"))
    job = host.open()
    assert (job.processed, job.notices) == (1, ())
    assert job.state["stats"]["resumes"] == 1


def test_a_missing_log_beside_a_state_is_told(host: SimHost) -> None:
    host.write("state.json", state_of(completed={item_hash("a"): AT}))
    job = host.open()
    assert whats(job) == ["log_missing"]
    assert "--lost" in job.notices[0].fix
    assert job.is_done("a")


def test_a_log_that_has_become_shorter_is_told(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a")
    job.record_finding("b")
    job.close()
    host.disk.truncate(host.path("findings.jsonl"), len(line("a")) - 30)
    host.kill()
    assert "log_short" in whats(host.open())


# Torn ends


def test_a_torn_last_line_is_set_aside_and_cut_and_its_item_runs_again(host: SimHost) -> None:
    torn = line("b")[:-9]
    host.write("findings.jsonl", line("a") + torn)
    job = host.open()
    assert (job.is_done("a"), job.is_done("b")) == (True, False)
    assert host.read("findings.jsonl") == line("a")
    (notice,) = job.notices
    assert (notice.what, notice.line, notice.byte) == ("torn_tail", 2, len(line("a")))
    assert f"line 2, byte {len(line('a'))}" in notice.message
    (kept,) = host.disk.list_dir(host.path(".torn"))
    assert host.read(f".torn/{kept}") == torn
    job.record_finding("b")
    assert [found["_key"] for found in host.log()] == ["a", "b"]


@pytest.mark.parametrize(
    "tail", [b"\0" * 5_000, b"   ", b"\xe2\x82", b'{"n":1}', bytes(range(256)), b"{}\n\0\n"]
)
def test_an_end_of_any_kind_that_is_no_finding_is_set_aside(host: SimHost, tail: bytes) -> None:
    host.write("findings.jsonl", line("a") + tail)
    job = host.open()
    assert host.read("findings.jsonl") == line("a")
    assert "torn_tail" in whats(job)
    (kept,) = host.disk.list_dir(host.path(".torn"))
    assert host.read(f".torn/{kept}") == tail


def test_a_whole_finding_that_lacks_its_newline_is_kept(host: SimHost) -> None:
    host.write("findings.jsonl", line("a") + line("b")[:-1])
    job = host.open()
    assert job.is_done("b")
    assert whats(job) == ["newline_added"]
    assert host.read("findings.jsonl") == line("a") + line("b")


def test_a_last_line_with_a_hash_alone_lacks_nothing_but_its_newline_either(host: SimHost) -> None:
    """No beginning of an object is one, so nothing is missing."""
    host.write("findings.jsonl", line("a") + b'{"_hash":"0123456789abcdef"}')
    job = host.open()
    assert job.processed == 2
    assert host.read("findings.jsonl") == line("a") + b'{"_hash":"0123456789abcdef"}\n'


def test_a_newline_that_is_all_that_is_missing_is_no_loss(host: SimHost) -> None:
    job = host.open()
    job.record_finding("a", {})
    job.finish()
    host.write("findings.jsonl", host.read("findings.jsonl")[:-1])
    again = host.open()
    assert whats(again) == ["newline_added"]
    assert again.is_done("a")


def test_bad_lines_before_whole_ones_in_the_last_append_are_blanked(host: SimHost) -> None:
    """As a power cut leaves an append that several findings shared."""
    hole = b"\0" * 40 + b"\n" + b'_at":"x"}\n'
    host.write("findings.jsonl", line("a") + hole + line("c"))
    job = host.open()
    assert (job.is_done("a"), job.is_done("c"), job.processed) == (True, True, 2)
    log = host.read("findings.jsonl")
    assert log == line("a") + b" " * 40 + b"\n" + b" " * 9 + b"\n" + line("c")
    (kept,) = host.disk.list_dir(host.path(".torn"))
    assert host.read(f".torn/{kept}") == hole
    assert "set_aside" in whats(job)
    host.kill()
    assert host.open().notices == ()
    assert host.read("findings.jsonl") == log


def test_each_of_several_holes_is_told_with_its_line(host: SimHost) -> None:
    log = line("a") + b"\0\n" + line("b") + b"\0\n\0\n" + line("c") + line("d")[:-1]
    host.write("findings.jsonl", log)
    job = host.open()
    assert [(notice.what, notice.line) for notice in job.notices] == [
        ("newline_added", 7), ("set_aside", 2), ("set_aside", 4)
    ]  # fmt: skip
    assert job.processed == 4


def test_a_lost_log_is_told_with_a_command_that_a_shell_takes(tmp_path: Path) -> None:
    directory = tmp_path / "two words"
    CheckpointedJob(directory, NAME).record_finding("a")
    (directory / "findings.jsonl").unlink()
    (notice,) = CheckpointedJob(directory, NAME).notices
    assert f"perdure job retry '{directory}' --lost" in notice.fix


def test_bad_lines_that_no_crash_explains_stay_and_are_told_each_time(host: SimHost) -> None:
    more = line("b", text="x" * 5_000) * (group_bytes_max // 5_000 + 1)
    log = line("a") + b"not a finding\n" + more
    host.write("findings.jsonl", log)
    for _ in range(2):
        job = host.open()
        (notice,) = job.notices
        assert (notice.what, notice.line, notice.byte) == ("bad_line", 2, len(line("a")))
        assert "line 2" in notice.message
        assert "not JSON" in notice.message
        assert "perdure job verify" in notice.fix
        assert host.read("findings.jsonl") == log
        host.kill()
        host.remove("state.json")


def test_many_bad_lines_are_counted_when_they_are_too_many_to_tell(host: SimHost) -> None:
    more = line("b", text="x" * 5_000) * (group_bytes_max // 5_000 + 1)
    count = bad_lines_kept_max + 7
    host.write("findings.jsonl", line("a") + b"bad\n" * count + more)
    job = host.open()
    assert whats(job) == ["bad_line"] * bad_lines_kept_max + ["bad_lines"]
    assert "7 more" in job.notices[-1].message


def test_a_line_that_is_longer_than_any_finding_is_passed_over(host: SimHost) -> None:
    long = b"x" * (line_bytes_max + 3_000_000)
    host.write("findings.jsonl", line("a") + long + b"\n" + line("b"))
    job = host.open()
    assert (job.processed, whats(job)) == (2, ["bad_line"])
    assert "longer than" in job.notices[0].message


@pytest.mark.parametrize(("more", "is_done"), [(0, True), (1, False)])
def test_opening_and_verify_agree_on_the_longest_line(
    host: SimHost, more: int, is_done: bool
) -> None:
    rest = len(line("b", text="")) - 1
    longest = line("b", text="x" * (line_bytes_max - rest + more))
    host.write("findings.jsonl", line("a") + longest + line("c"))
    counts = verify_job(host.disk, ROOT).counts
    assert (counts["items"], counts["bad_lines"]) == (2 + is_done, 1 - is_done)
    assert host.open().is_done("b") == is_done


def test_an_end_that_is_longer_than_any_finding_becomes_a_line(host: SimHost) -> None:
    long = b"x" * (line_bytes_max + 3_000_000)
    host.write("findings.jsonl", line("a") + long)
    job = host.open()
    assert whats(job) == ["bad_line"]
    job.record_finding("b")
    host.kill()
    job = host.open()
    assert (job.is_done("a"), job.is_done("b")) == (True, True)


def test_a_text_that_was_never_a_log_is_refused_and_left_alone(host: SimHost) -> None:
    text = b'{"note": "of another tool"}\n{"note": "and more"}\n'
    host.write("findings.jsonl", text)
    with pytest.raises(RefusedError, match="not_a_log") as caught:
        host.open()
    assert "line 1, byte 0" in str(caught.value)
    assert host.read("findings.jsonl") == text
    host.remove("findings.jsonl")
    host.open()


def test_a_first_append_of_which_only_noise_is_left_is_set_aside(host: SimHost) -> None:
    host.write("findings.jsonl", b"\xf0\x00\n\x93\n")
    job = host.open()
    assert (job.processed, host.read("findings.jsonl")) == (0, b"")
    assert "torn_tail" in whats(job)


# Believing


def test_nothing_is_believed_before_the_log_and_its_directory_were_synced(host: SimHost) -> None:
    host.write("findings.jsonl", line("a"))
    first = len(host.disk.log)
    host.open()
    steps = host.write_steps(first)
    rewritten = steps.index("write findings.jsonl")
    assert steps[rewritten + 1 : rewritten + 3] == ["sync_file findings.jsonl", "sync_dir job"]
    assert rewritten < steps.index("rename .state.json.tmp-1-1")
    assert host.read("findings.jsonl") == line("a")


@pytest.mark.parametrize("kind", ["sync_file", "sync_dir", "write"])
def test_a_log_that_cannot_be_made_safe_is_not_believed(host: SimHost, kind: str) -> None:
    host.write("findings.jsonl", line("a"))
    names = ("/findings.jsonl", "/job")
    host.disk.fail(lambda op: op.kind == kind and op.path.endswith(names), errno.EIO)
    with pytest.raises(StorageError):
        host.open()
    assert "state.json" not in host.names()
    host.disk.heal()
    assert host.open().is_done("a")


# Full and read-only disks


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("existing", [False, True])
def test_an_opening_that_fails_at_any_step_leaves_nothing_half_done(
    number: int, existing: bool
) -> None:
    def prepared() -> SimHost:
        host = SimHost()
        if existing:
            host.open().record_finding("a", {"n": 1})
            host.kill()
        return host

    whole = prepared()
    whole.open()
    for step in range(1, len(whole.disk.log) + 1):
        host = prepared()
        host.disk.fail(step, number)
        try:
            host.open()
        except StorageError as error:
            assert errno.errorcode[number] in str(error)  # noqa: PT017 - some steps may fail
            assert not [name for name in host.names() if ".tmp-" in name]
        host.disk.heal()
        job = host.open()
        assert job.is_done("a") == existing
        assert job.notices == ()
        job.record_finding("b")
        host.kill()


def test_a_job_that_could_not_be_opened_is_free_for_the_next(host: SimHost) -> None:
    host.disk.fail(lambda op: "state.json" in op.path, errno.ENOSPC)
    with pytest.raises(StorageError):
        host.open()
    CheckpointedJob(ROOT, NAME, world=host.beside()).close()
