"""A task that is carried to another machine's layout, and files that are not what they say.

Field cases: F27 (an exported and imported task has the same state hash and journal), F28 (a
workspace that moved goes on with nothing done again).
"""

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.nested import write_cards
from tests.integration.shell import call, finish, start

from perdure.core import bundle as b
from perdure.errors import CorruptError, HaltError, RefusedError
from perdure.runtime.tar_stream import header, padding
from perdure.runtime.world import real_world
from perdure.service.tasks import Service
from perdure.service.transfer import check_file, export_task, import_task
from perdure.storage.disk import RealDisk

ME = "coordinator:tester"
TASK = """
task_id: moved
nodes:
  - id: one
    run: echo x >> "$PERDURE_WORKSPACE/tmp/one.count"; echo 1 > "$PERDURE_SCOPE/one.txt"
    outputs: [artifacts/one/one.txt]
  - id: two
    deps: [one]
    run: test -e {gate} && cat artifacts/one/one.txt > "$PERDURE_SCOPE/two.txt"
    outputs: [artifacts/two/two.txt]
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A task whose first node is done and whose second one waits for a file to appear."""
    (tmp_path / "a").mkdir()
    text = TASK.replace("{gate}", str(tmp_path / "gate"))
    (tmp_path / "a" / "task.yaml").write_text(text, encoding="utf-8")
    done = call("run", "task.yaml", "-C", "w", cwd=str(tmp_path / "a"))
    assert done.code != 0, done.out
    scope = tmp_path / "a" / "w" / "artifacts" / "one"
    tool = scope / "tool.sh"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    os.utime(tool, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    return tmp_path


def exported(here: Path, name: str = "t.tar.gz", **how: Any) -> Path:
    file = here / name
    export_task(str(here / "a" / "w"), str(file), actor=ME, **how)
    return file


def imported(here: Path, file: Path, where: str = "b/far/away/w") -> Path:
    import_task(str(file), where, str(here), actor=ME)
    return here / where


def test_f27_the_imported_task_has_the_same_journal_and_state_hash(here: Path) -> None:
    w = here / "a" / "w"
    file = exported(here)
    there = imported(here, file)
    assert (there / "journal.jsonl").read_bytes() == (w / "journal.jsonl").read_bytes()
    hashes = [Service(str(at), actor=ME).verify() for at in (w, there)]
    assert hashes[0]["state_hash"] == hashes[1]["state_hash"] == check_file(str(file))["state_hash"]
    assert len(hashes[0]["state_hash"]) == 64
    assert hashes[1]["ok"]
    assert not hashes[1]["notices"]
    tool = (there / "artifacts/one/tool.sh").stat()
    assert tool.st_mtime_ns == 1_700_000_000_123_456_789
    assert tool.st_mode & 0o111


def test_f28_a_moved_task_goes_on_and_does_nothing_again(here: Path) -> None:
    file = exported(here)
    shutil.move(here / "a", here / "gone")  # the layout of the first machine is no more
    there = imported(here, file)
    status = Service(str(there), actor=ME).status()
    assert status["all_integrity_pass"]
    (here / "gate").touch()
    environment = {"HOME": str(here / "other-home"), "USER": "somebody"}
    for words in (["answer", "Q-two-3", "it is there now"], ["retry", "two", "--method", "again"]):
        done = call(*words, "-C", str(there), "--actor", "sponsor:somebody", **environment)
    done = call("run", "-C", str(there), str(here / "gone/task.yaml"), cwd=str(here), **environment)
    assert done.code == 0, done.out + done.err
    assert (there / "artifacts/two/two.txt").read_text() == "1\n"
    assert not (there / "tmp/one.count").exists()
    assert (here / "gone/w/tmp/one.count").read_text() == "x\n"
    assert Service(str(there), actor=ME).verify()["ok"]


def test_nothing_in_a_bundle_binds_a_machine(here: Path) -> None:
    with tarfile.open(exported(here)) as archive:
        members = archive.getmembers()
    names = {member.name for member in members}
    assert {b.MANIFEST_NAME, "journal.jsonl", "artifacts/one/one.txt"} <= names
    assert not names & {"lease.json", ".journal.lock", ".snapshot.json", "task-graph.json"}
    assert not [name for name in names if name.startswith("tmp/")]
    assert all(m.isreg() and not m.name.startswith("/") and not m.uid for m in members)


def test_the_same_workspace_gives_the_same_bytes(here: Path) -> None:
    assert exported(here).read_bytes() == exported(here, "u.tar.gz").read_bytes()


@pytest.mark.parametrize("name", ["t.tar", "t.tgz"])
def test_other_containers_are_read_as_well(here: Path, name: str) -> None:
    assert (imported(here, exported(here, name)) / "journal.jsonl").exists()


def test_importing_the_same_again_changes_nothing(here: Path) -> None:
    file = exported(here)
    there = imported(here, file)
    before = {path: path.stat().st_mtime_ns for path in there.rglob("*")}
    assert import_task(str(file), str(there), str(here), actor=ME)["identical"]
    assert {path: path.stat().st_mtime_ns for path in there.rglob("*")} == before


def note(workspace: Path, text: str) -> None:
    Service(str(workspace), actor=ME).call("note", {"text": text})


def refusal_of(here: Path, file: Path, there: Path) -> HaltError:
    before = (there / "journal.jsonl").read_bytes()
    with pytest.raises(RefusedError) as refusal:
        import_task(str(file), str(there), str(here), actor=ME)
    assert (there / "journal.jsonl").read_bytes() == before
    return refusal.value


def test_import_over_an_earlier_state_says_how_far_behind_it_is(here: Path) -> None:
    there = imported(here, exported(here))
    seq = Service(str(there), actor=ME).status()["seq_last"]
    note(here / "a/w", "one more")
    note(here / "a/w", "and another")
    error = refusal_of(here, exported(here, "later.tar.gz"), there)
    assert error.code == "import_behind"
    assert f"J-{seq}, and the file has 2 events more" in error.message


def test_import_over_a_later_state_says_how_far_ahead_it_is(here: Path) -> None:
    file = exported(here)
    there = imported(here, file)
    note(there, "one more")
    error = refusal_of(here, file, there)
    assert error.code == "import_ahead"
    assert "1 events more" in error.message


def test_import_over_a_fork_names_the_event_at_which_they_part(here: Path) -> None:
    there = imported(here, exported(here))
    seq = Service(str(there), actor=ME).status()["seq_last"]
    note(there, "this way")
    note(here / "a/w", "that way")
    error = refusal_of(here, exported(here, "fork.tar.gz"), there)
    assert error.code == "import_forked"
    assert error.rule == "IM-1"
    assert f"part at J-{seq + 1}:" in error.message
    assert "NOTE by coordinator:tester" in error.message


def test_import_over_another_task_is_refused(here: Path) -> None:
    call("init", "other", "-C", "o", cwd=str(here))
    error = refusal_of(here, exported(here), here / "o")
    assert (error.code, error.rule) == ("task_exists", "D2")


def test_import_into_a_directory_with_other_files_is_refused(here: Path) -> None:
    (here / "full").mkdir()
    (here / "full/mine.txt").write_text("mine")
    with pytest.raises(RefusedError) as refusal:
        import_task(str(exported(here)), "full", str(here), actor=ME)
    assert refusal.value.code == "target_not_empty"
    (here / "empty").mkdir()
    imported(here, here / "t.tar.gz", "empty")


def test_in_a_project_the_imported_task_becomes_the_current_one(here: Path) -> None:
    file = exported(here)
    project = here / "p"
    project.mkdir()
    first = call("import", str(file), "--json", cwd=str(project))
    assert first.data["workspace"] == str(project / ".perdure/tasks/moved")
    assert call("status", "--json", cwd=str(project)).data["task_id"] == "moved"
    call("init", "later", cwd=str(project))
    call("import", str(file), "--no-current", cwd=str(project))
    assert call("status", "--json", cwd=str(project)).data["task_id"] == "later"
    assert call("import", str(file), "--json", cwd=str(project)).data["identical"]
    assert call("status", "--json", cwd=str(project)).data["task_id"] == "moved"


# ------------------------------------------------------------------------ files that are not whole


def spoil(file: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Change a bundle as somebody would who knows the format, and seal it again."""
    with tarfile.open(file) as archive:
        data = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
    manifest = json.loads(data.pop(b.MANIFEST_NAME))
    del manifest["sum"]
    change(manifest, data)
    body = json.dumps(manifest).encode()[:-1]
    head = body + b',"sum":"%b"}' % b.sha256(body).hexdigest()[:16].encode()
    out = io.BytesIO()
    for name, content in {b.MANIFEST_NAME: head, **data}.items():
        out.write(header(name, len(content)) + content + padding(len(content)))
    file.write_bytes(gzip.compress(out.getvalue() + b"\0" * 1024))


def entry(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(f for f in manifest["files"] if f["path"] == name)
    return found


def set_bytes(manifest: dict[str, Any], data: dict[str, bytes], name: str, content: bytes) -> None:
    found = entry(manifest, name)
    found["sha256"], found["size_bytes"] = b.sha256(content).hexdigest(), len(content)
    data[name] = content


def other_bytes(m: dict[str, Any], data: dict[str, bytes]) -> None:
    data["artifacts/one/one.txt"] = b"2\n"


def other_artifact(m: dict[str, Any], data: dict[str, bytes]) -> None:
    set_bytes(m, data, "artifacts/one/one.txt", b"2\n")


def artifact_gone(m: dict[str, Any], data: dict[str, bytes]) -> None:
    del data["artifacts/one/one.txt"]
    m["files"].remove(entry(m, "artifacts/one/one.txt"))


def line_changed(m: dict[str, Any], data: dict[str, bytes]) -> None:
    changed = data["journal.jsonl"].replace(b"INSTANCE_STARTED", b"INSTANCE_STOPPED", 1)
    set_bytes(m, data, "journal.jsonl", changed)


def line_lost(m: dict[str, Any], data: dict[str, bytes]) -> None:
    lines = data["journal.jsonl"].splitlines(keepends=True)
    set_bytes(m, data, "journal.jsonl", b"".join(lines[:2]))


def half_a_line(m: dict[str, Any], data: dict[str, bytes]) -> None:
    set_bytes(m, data, "journal.jsonl", data["journal.jsonl"][:-5])


def other_state(m: dict[str, Any], data: dict[str, bytes]) -> None:
    m["state_hash"] = "0" * 64


def other_task(m: dict[str, Any], data: dict[str, bytes]) -> None:
    m["task_id"] = "stolen"


def undeclared(m: dict[str, Any], data: dict[str, bytes]) -> None:
    data["artifacts/one/more.txt"] = b"x"


def planted_lease(m: dict[str, Any], data: dict[str, bytes]) -> None:
    m["files"].append({**entry(m, "artifacts/one/one.txt"), "path": "lease.json"})
    data["lease.json"] = data["artifacts/one/one.txt"]


def climbing(m: dict[str, Any], data: dict[str, bytes]) -> None:
    m["files"].append({**entry(m, "artifacts/one/one.txt"), "path": "../evil.txt"})
    data["../evil.txt"] = data["artifacts/one/one.txt"]


def larger(m: dict[str, Any], data: dict[str, bytes]) -> None:
    data["artifacts/one/one.txt"] = b"\0" * 5_000_000


@pytest.mark.parametrize(
    "change",
    [
        other_bytes, other_artifact, artifact_gone, line_changed, line_lost, half_a_line,
        other_state, other_task, undeclared, planted_lease, climbing, larger,
    ],
)  # fmt: skip
def test_a_bundle_that_does_not_hold_what_it_says_leaves_no_trace(
    here: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]
) -> None:
    file = exported(here)
    spoil(file, lambda m, data: None)
    check_file(str(file))  # sealed again without a change it still holds
    spoil(file, change)
    before = set(here.rglob("*"))
    with pytest.raises(CorruptError) as damage:
        imported(here, file)
    assert damage.value.exit_code == 6
    assert set(here.rglob("*")) == before


def special(kind: bytes, name: str, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info.tobuf(tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_members_that_are_no_plain_files_are_refused(here: Path, kind: bytes) -> None:
    file = exported(here, "t.tar")
    data = file.read_bytes()
    at = data.index(b"journal.jsonl\0")
    file.write_bytes(data[:at] + special(kind, "artifacts/x", "/etc/passwd") + data[at:])
    with pytest.raises(CorruptError) as damage:
        imported(here, file)
    assert damage.value.code == "bundle_unsafe"


def cuts(data: bytes) -> Iterator[bytes]:
    for size in range(0, len(data), max(1, len(data) // 60)):
        yield data[:size]


@pytest.mark.parametrize("name", ["t.tar", "t.tar.gz"])
def test_a_truncated_file_is_damaged_wherever_it_was_cut(here: Path, name: str) -> None:
    file = exported(here, name)
    whole = file.read_bytes()
    for data in cuts(whole):
        file.write_bytes(data)
        with pytest.raises(CorruptError):
            check_file(str(file))
    file.write_bytes(whole)
    check_file(str(file))


def test_any_flipped_byte_of_a_compressed_file_is_noticed(here: Path) -> None:
    file = exported(here)
    whole = file.read_bytes()
    for at in range(10, len(whole), max(1, len(whole) // 80)):  # before that is gzip's own header
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises(CorruptError):
            check_file(str(file))


def test_something_else_is_no_exported_task(here: Path) -> None:
    file = here / "x.tar.gz"
    file.write_bytes(b"hello")
    done = call("import", str(file), "--json", cwd=str(here))
    assert (done.code, done.error["code"]) == (6, "bundle_damaged")
    assert call("import", str(here / "nothing.tar"), cwd=str(here)).code in (3, 7)


# ------------------------------------------------------------------------------ what is exported


def test_a_changed_or_missing_artifact_is_told_and_exported_all_the_same(here: Path) -> None:
    one = here / "a/w/artifacts/one/one.txt"
    one.write_text("changed\n")
    done = call("export", "x.tar.gz", "-C", "a/w", "--json", cwd=str(here))
    assert done.code == 1
    assert [told["path"] for told in done.data["damaged"]] == ["artifacts/one/one.txt"]
    one.unlink()
    done = call("export", "y.tar.gz", "-C", "a/w", "--json", cwd=str(here))
    assert done.code == 1
    assert [told["path"] for told in done.data["missing"]] == ["artifacts/one/one.txt"]
    there = imported(here, here / "y.tar.gz")
    assert not Service(str(there), actor=ME).verify()["ok"]


def test_a_damaged_journal_is_not_exported(here: Path) -> None:
    journal = here / "a/w/journal.jsonl"
    data = journal.read_bytes()
    journal.write_bytes(data.replace(b"INSTANCE_STARTED", b"INSTANCE_STOPPED", 1))
    done = call("export", "x.tar.gz", "-C", "a/w", cwd=str(here))
    assert done.code == 6
    assert not (here / "x.tar.gz").exists()
    assert not [path for path in here.iterdir() if "tmp-" in path.name]


def test_a_torn_tail_is_left_out_and_said(here: Path) -> None:
    journal = here / "a/w/journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"seq":')
    data = export_task(str(here / "a/w"), str(here / "t.tar"), actor=ME)
    assert "unfinished commit" in data["left_out"][0]["why"]
    assert (imported(here, here / "t.tar") / "journal.jsonl").read_bytes() == whole


def test_links_are_followed_inside_the_task_only_and_never_carried(here: Path) -> None:
    scope = here / "a/w/artifacts/one"
    (here / "secret.txt").write_text("outside")
    (scope / "inside").symlink_to("one.txt")
    (scope / "outside").symlink_to(here / "secret.txt")
    (scope / "round").symlink_to(scope)
    data = export_task(str(here / "a/w"), str(here / "t.tar"), actor=ME)
    told = {item["path"] for item in data["left_out"]}
    assert {"artifacts/one/outside", "artifacts/one/round"} <= told
    there = imported(here, here / "t.tar") / "artifacts/one"
    assert (there / "inside").read_text() == "1\n"
    assert not (there / "inside").is_symlink()
    assert not (there / "outside").exists()


def test_logs_come_along_only_when_asked_for_and_without_secrets(here: Path) -> None:
    log = here / "a/w/tmp/logs/one"
    log.mkdir(parents=True, exist_ok=True)
    token = "ghp_" + "aB3dE5" * 6
    (log / "out.log").write_text(f"before\ntoken {token}\nafter\n")
    assert not (imported(here, exported(here), "b1") / "tmp").exists()
    data = export_task(str(here / "a/w"), str(here / "l.tar"), actor=ME, logs=True)
    text = (imported(here, here / "l.tar", "b2") / "tmp/logs/one/out.log").read_text()
    assert token not in text
    assert text.startswith("before\ntoken [masked:")
    assert text.endswith("\nafter\n")
    assert sum(data["masked"].values()) == 1


def test_names_of_every_kind_arrive(here: Path) -> None:
    scope = here / "a/w/artifacts/one"
    names = ["ä ö.txt", "x" * 200, "日本語/" + "深" * 60 + "/f", "-n", "a'b\"c"]
    for name in names:
        (scope / name).parent.mkdir(parents=True, exist_ok=True)
        (scope / name).write_text(name)
    there = imported(here, exported(here))
    for name in names:
        assert (there / "artifacts/one" / name).read_text() == name


def test_export_while_somebody_writes_is_a_whole_prefix(here: Path) -> None:
    w = str(here / "a/w")
    children = [start("note", f"n{i}", "-C", w) for i in range(6)]
    data = export_task(w, str(here / "t.tar.gz"), actor=ME)
    for child in children:
        assert finish(child).code == 0
    there = imported(here, here / "t.tar.gz")
    journal = (there / "journal.jsonl").read_bytes()
    assert (here / "a/w/journal.jsonl").read_bytes().startswith(journal)
    assert Service(str(there), actor=ME).verify()["state_hash"] == data["state_hash"]


def test_of_several_imports_at_once_one_makes_the_workspace_and_none_spoils_it(here: Path) -> None:
    file = exported(here)
    children = [start("import", str(file), "-C", str(here / "n/w")) for _ in range(5)]
    codes = [finish(child).code for child in children]
    assert 0 in codes
    assert set(codes) <= {0, 5}
    assert Service(str(here / "n/w"), actor=ME).verify()["ok"]
    assert [path.name for path in (here / "n").iterdir()] == ["w"]


def test_a_file_that_goes_away_while_the_rest_is_copied_is_no_fault(here: Path) -> None:
    class Vanishing(RealDisk):
        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            if path.endswith("tool.sh"):
                os.unlink(path)
            return super().read(path, offset, length)

    world = real_world()._replace(disk=Vanishing())
    data = export_task(str(here / "a/w"), str(here / "t.tar"), actor=ME, world=world)
    assert data["exit_code"] == 0
    assert not (imported(here, here / "t.tar") / "artifacts/one/tool.sh").exists()


def test_a_large_file_passes_through_in_pieces(here: Path) -> None:
    large = here / "a/w/artifacts/one/large.bin"
    with large.open("wb") as file:
        for number in range(12):
            file.write(bytes([number]) * (1 << 20))
    there = imported(here, exported(here))
    assert (there / "artifacts/one/large.bin").read_bytes() == large.read_bytes()


def test_instances_come_along_with_their_own_histories(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    from_nested = _nested(tmp_path / "a")
    file = tmp_path / "n.tar.gz"
    data = export_task(str(from_nested), str(file), actor=ME)
    assert data["instances"] == 2
    there = tmp_path / "b/w"
    import_task(str(file), str(there), str(tmp_path), actor=ME)
    journals = [p.relative_to(there) for p in there.rglob("journal.jsonl")]
    assert len(journals) == 3
    for path in journals:
        assert (there / path).read_bytes() == (from_nested / path).read_bytes()
    assert Service(str(there), actor=ME).verify()["ok"]


def _nested(directory: Path) -> Path:
    write_cards(directory)
    os.mkfifo(directory / "gate")
    run = start("-C", "w", "run", "task.yaml", cwd=str(directory))
    gate = os.open(directory / "gate", os.O_WRONLY)
    os.write(gate, b"through\n")
    os.close(gate)
    done = finish(run)
    assert done.code == 0, done.out + done.err
    return directory / "w"
