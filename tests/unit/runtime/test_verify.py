"""What each acceptance check finds in a workspace; nothing it meets can stop the others."""

import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core.criteria import parse_criterion
from perdure.core.model import CHECK_METHODS, Criterion
from perdure.errors import StorageError
from perdure.runtime import file_glob, probe, script, verify
from perdure.runtime.probe import hash_file
from perdure.runtime.verify import CheckResult, run_checks
from perdure.storage.disk import RealDisk

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "PERDURE_NODE": "N1"}
PERSON = {"type": "object", "required": ["name"], "properties": {"age": {"type": "integer"}}}


@pytest.fixture
def root(workspace: str) -> Path:
    return Path(workspace)


def run(root: Path, *entries: object, timeout_s: float = 30.0, **more: Any) -> list[CheckResult]:
    criteria = [parse_criterion(entry) for entry in entries]
    arguments: dict[str, Any] = {"environment": ENVIRONMENT, "timeout_s": timeout_s} | more
    return run_checks(RealDisk(), str(root), "N1", criteria, **arguments)


def one(root: Path, entry: object, **more: Any) -> CheckResult:
    [result] = run(root, entry, **more)
    return result


def put(root: Path, path: str, data: bytes | str = b"x") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_input(path: str, data: bytes) -> dict[str, Any]:
    return {"path": path, "sha256": sha256(data), "size_bytes": len(data)}


# Files that are there, and their bytes.


def test_exists_reads_and_hashes_the_file(root: Path) -> None:
    put(root, "out/a.txt", b"hello")
    result = one(root, "exists: out/a.txt")
    assert result.passed
    assert result.inputs == (as_input("out/a.txt", b"hello"),)
    assert result.detail == "out/a.txt is there, 5 bytes."


def test_exists_is_content_with_an_empty_file_and_a_directory(root: Path) -> None:
    put(root, "site/empty", b"")
    assert one(root, "exists: site site/empty").passed


def test_a_missing_file_fails_by_name(root: Path) -> None:
    result = one(root, "exists: a.txt")
    assert not result.passed
    assert result.detail == "a.txt is not there."


def test_every_path_of_a_check_is_looked_at(root: Path) -> None:
    put(root, "b")
    result = one(root, "exists: a b c")
    assert result.detail == "a is not there; c is not there."
    assert result.inputs == (as_input("b", b"x"),)


def test_nonempty_wants_bytes_in_a_file_and_names_in_a_directory(root: Path) -> None:
    put(root, "full/a", b"1")
    put(root, "none", b"")
    (root / "hollow").mkdir()
    assert one(root, "nonempty: full full/a").passed
    assert one(root, "nonempty: none hollow").detail == "none is empty; hollow is empty."
    assert not one(root, "nonempty: nowhere").passed


def test_the_named_sha256_passes_and_another_names_the_one_found(root: Path) -> None:
    data = bytes(range(256)) * 20_000  # more than one piece of a streamed reading
    put(root, "a.bin", data)
    good = one(root, f"sha256: a.bin {sha256(data)}")
    assert good.passed
    assert good.inputs == (as_input("a.bin", data),)
    bad = one(root, f"sha256: a.bin {'0' * 64}")
    assert not bad.passed
    assert sha256(data) in bad.detail
    assert not one(root, f"sha256: other {'0' * 64}").passed


def test_hashing_a_file_gives_digest_and_size(root: Path) -> None:
    file = put(root, "a", b"abc")
    assert hash_file(RealDisk(), str(file)) == (sha256(b"abc"), 3)


@pytest.mark.parametrize("method", ["exists: {}", "nonempty: {}", "matches: {} x", "units: {}"])
def test_a_link_out_of_the_workspace_is_a_failed_result(root: Path, method: str) -> None:
    outside = put(root.parent, "outside.jsonl", b'{"unit_id": "x", "status": "ok"}')
    (root / "link").symlink_to(outside)
    (root / "folder").symlink_to(root.parent)
    for path in ("link", "folder/outside.jsonl"):
        result = one(root, method.format(path))
        assert not result.passed
        assert "path_refused" in result.detail
        assert result.inputs == ()


def test_a_link_inside_the_workspace_is_followed(root: Path) -> None:
    put(root, "real", b"abc")
    (root / "link").symlink_to("real")
    assert one(root, "nonempty: link").inputs == (as_input("link", b"abc"),)


def test_a_link_to_nothing_is_not_there(root: Path) -> None:
    (root / "link").symlink_to("gone")
    assert one(root, "exists: link").detail == "link is not there."


def test_a_pipe_is_refused_and_never_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for entry in ("exists: pipe", "matches: pipe x", "count: lines pipe >= 0"):
        result = one(root, entry)
        assert not result.passed
        assert "not a regular file" in result.detail


def test_a_directory_has_no_content_to_check(root: Path) -> None:
    (root / "d").mkdir()
    assert one(root, "matches: d x").detail == "d is a directory."


def test_an_unreadable_file_fails_its_own_check_only(root: Path) -> None:
    put(root, "a")
    put(root, "b")

    class BadSector(RealDisk):
        def read_chunks(
            self, path: str, chunk_bytes: int = 1 << 20, offset: int = 0
        ) -> Iterator[bytes]:
            if path.endswith("/a"):
                raise StorageError("Reading failed: EIO.")
            return super().read_chunks(path, chunk_bytes, offset)

    criteria = [parse_criterion("exists: a"), parse_criterion("exists: b")]
    results = run_checks(
        BadSector(), str(root), "N1", criteria, environment=ENVIRONMENT, timeout_s=1
    )
    assert [result.passed for result in results] == [False, True]
    assert "io_error" in results[0].detail
    assert "EIO" in results[0].detail


# JSON Schema.


def test_a_document_is_validated_against_a_schema_file_and_both_are_inputs(root: Path) -> None:
    schema, document = json.dumps(PERSON).encode(), b'{"name": "Ada", "age": 36}'
    put(root, "s.json", schema)
    put(root, "a.json", document)
    result = one(root, "json-schema: a.json s.json")
    assert result.passed
    assert result.inputs == (as_input("s.json", schema), as_input("a.json", document))


def test_errors_are_named_with_their_json_paths(root: Path) -> None:
    put(root, "a.json", b'{"age": "old"}')
    result = one(root, {"json-schema": {"path": "a.json", "schema": PERSON}})
    assert not result.passed
    assert "$.age: 'old' is not of type 'integer'" in result.detail
    assert "'name' is a required property" in result.detail


def test_at_most_five_errors_are_named(root: Path) -> None:
    put(root, "a.json", json.dumps(["x" * 10_000] * 50))
    schema = {"items": {"type": "integer"}}
    result = one(root, {"json-schema": {"path": "a.json", "schema": schema}})
    assert result.detail.count("$[") == 5
    assert "more" in result.detail
    assert len(result.detail) <= verify.detail_chars_max


def test_lines_are_validated_one_by_one_with_their_numbers(root: Path) -> None:
    put(root, "a.jsonl", b'{"name": "Ada"}\r\n\n{"age": 1}\n{"na')
    result = one(root, {"json-schema": {"path": "a.jsonl", "schema": PERSON}})
    assert not result.passed
    assert "line 3: $: 'name' is a required property" in result.detail
    assert "line 4: it is not JSON" in result.detail
    put(root, "a.jsonl", b'{"name": "Ada"}\n{"name": "Bob"}\n')
    good = one(root, {"json-schema": {"path": "a.jsonl", "schema": PERSON}})
    assert good.passed
    assert good.detail == "2 lines of a.jsonl are valid."


def test_bad_lines_past_the_first_few_are_still_hashed(root: Path) -> None:
    data = b"{}\n" * 1_000
    put(root, "a.jsonl", data)
    result = one(root, {"json-schema": {"path": "a.jsonl", "schema": PERSON}})
    assert result.inputs == (as_input("a.jsonl", data),)
    assert not result.passed


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nonsense"}, "the schema is invalid at $.type"),
        ({"$schema": "https://example.org/mine"}, "not a draft of JSON Schema"),
        ({"$schema": 7}, "not a draft of JSON Schema"),
        ({"$ref": "https://example.org/other.json"}, "which it lacks"),
        ({"$ref": "#/$defs/missing"}, "which it lacks"),
        ({"$ref": "#"}, "cannot be applied"),
        ({"pattern": "("}, "the schema is invalid at $.pattern"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "patternProperties": {"(": {}}},
            "cannot be applied",
        ),
    ],
)
def test_a_schema_that_cannot_be_applied_fails_and_says_so(
    root: Path, schema: dict[str, Any], said: str
) -> None:
    put(root, "a.json", b'{"text": "text"}')
    result = one(root, {"json-schema": {"path": "a.json", "schema": schema}})
    assert not result.passed
    assert said in result.detail


def test_the_draft_that_the_schema_names_is_used(root: Path) -> None:
    put(root, "a.json", b"[1, 2]")
    # A list of item schemas meant this up to 2019-09, and is invalid from 2020-12 on.
    schema: dict[str, Any] = {"items": [{"type": "integer"}, {"type": "string"}]}
    old = schema | {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert "$[1]" in one(root, {"json-schema": {"path": "a.json", "schema": old}}).detail
    new = one(root, {"json-schema": {"path": "a.json", "schema": schema}})
    assert "schema is invalid" in new.detail


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"\xff", b"[" * 100_000])
def test_what_is_not_json_fails(root: Path, data: bytes) -> None:
    put(root, "a.json", data)
    result = one(root, {"json-schema": {"path": "a.json", "schema": {}}})
    assert not result.passed
    assert "a.json is not JSON" in result.detail


def test_a_schema_file_that_is_no_object_fails(root: Path) -> None:
    put(root, "a.json", b"1")
    put(root, "s.json", b"[]")
    assert one(root, "json-schema: a.json s.json").detail == "the schema is not a JSON object."


# Patterns and numbers.


def test_a_pattern_is_searched_line_by_line(root: Path) -> None:
    put(root, "a.md", "# One\n\n# Summary\nText\n")
    result = one(root, "matches: a.md ^# Summary$")
    assert result.passed
    assert result.detail == "a.md matches on line 3: '# Summary'."
    assert not one(root, "matches: a.md ^Summary").passed


def test_bytes_that_are_not_utf8_do_not_stop_the_search(root: Path) -> None:
    put(root, "a.txt", b"\xff\xfe caf\xc3\xa9 done")
    assert one(root, "matches: a.txt café done").passed
    assert one(root, "matches: a.txt \ufffd").passed


def test_a_file_too_large_to_search_fails_clearly(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "matched_file_bytes_max", 10)
    put(root, "a.txt", b"0123456789")
    assert one(root, "matches: a.txt 9").passed
    put(root, "a.txt", b"0123456789+")
    result = one(root, "matches: a.txt 9")
    assert not result.passed
    assert "larger than 10 bytes" in result.detail


@pytest.mark.parametrize(
    ("condition", "passed"),
    [("== 3", True), (">= 3", True), ("> 3", False), ("<= 3", True), ("< 3", False),
     (">= 1 <= 5", True), ("== 2", False)],
)  # fmt: skip
def test_lines_are_counted_and_compared(root: Path, condition: str, passed: bool) -> None:
    put(root, "a.txt", b"one\n\nthree without a line feed")
    result = one(root, f"count: lines a.txt {condition}")
    assert result.passed is passed
    assert result.detail == "a.txt has 3 lines."
    assert len(result.inputs) == 1


def test_lines_are_counted_across_the_pieces_of_a_large_file(root: Path) -> None:
    put(root, "a.txt", b"0123456789\n" * 300_000)
    assert one(root, "count: lines a.txt == 300000").passed


def test_a_line_without_end_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "line_bytes_max", 1_000)
    put(root, "a.txt", b"ok\n" + b"x" * 3_000)
    assert "line 2 of a.txt is longer" in one(root, "count: lines a.txt >= 1").detail


def test_an_empty_file_has_no_lines(root: Path) -> None:
    put(root, "a.txt", b"")
    assert one(root, "count: lines a.txt == 0").passed


@pytest.mark.parametrize(
    ("glob", "number"),
    [
        ("out/*.csv", 2),
        ("out/**/*.csv", 4),
        ("**/*.csv", 5),
        ("*.csv", 1),
        ("out/?.csv", 2),
        ("out/a.csv", 1),
        ("out/*/c.csv", 1),
        ("out/**", 6),
        ("out/.*", 1),
        ("out/[ab].csv", 0),
        ("out", 0),
        ("nowhere/*", 0),
        ("out/a.csv/*", 0),
        ("**/**/d.csv", 1),
        ("*/*/*/*.csv", 1),
    ],
)
def test_a_glob_counts_files_inside_the_workspace(root: Path, glob: str, number: int) -> None:
    for path in ("top.csv", "out/a.csv", "out/b.csv", "out/note.txt", "out/.hidden",
                 "out/deep/c.csv", "out/deep/er/d.csv", "out/deep/er/e.md"):  # fmt: skip
        put(root, path)
    (root / "out/folder.csv").mkdir()
    result = one(root, {"count": {"glob": glob, "equals": number}})
    assert result.passed, result.detail
    assert result.inputs == ()


def test_a_glob_counts_no_links_and_enters_none(root: Path) -> None:
    put(root.parent, "elsewhere/secret.csv")
    put(root, "out/a.csv")
    (root / "out/link.csv").symlink_to(root.parent / "elsewhere/secret.csv")
    (root / "out/inside.csv").symlink_to("a.csv")
    (root / "out/folder").symlink_to(root.parent / "elsewhere")
    (root / "out/loop").symlink_to(root)
    result = one(root, "count: out/**/*.csv == 1")
    assert result.passed, result.detail
    assert "4 links passed over" in result.detail
    assert one(root, "count: out/folder/*.csv == 0").passed


def test_a_wildcard_does_not_count_what_the_runtime_keeps(root: Path) -> None:
    for path in ("journal.jsonl", "task-graph.json", ".snapshot.json", "contracts/inv-1.json",
                 "steering/spool/1.json", "docs/task-plan.md", "artifacts/registry.json",
                 "artifacts/old/A-1-1", "artifacts/N1/a.json"):  # fmt: skip
        put(root, path)
    put(root, "out/od\\d")
    assert one(root, "count: **/* == 2").passed
    assert one(root, "count: * == 0").passed
    assert one(root, "count: artifacts/*/* == 1").passed
    assert one(root, "count: contracts/*.json == 1").passed


def test_the_names_that_were_counted_can_be_recomputed(root: Path) -> None:
    for name in ("b", "a", "c"):
        put(root, f"out/{name}")
    detail = one(root, "count: out/* >= 1").detail
    assert sha256(b"out/a\nout/b\nout/c\n") in detail
    assert detail.endswith(": out/a, out/b, out/c.")


def test_a_name_that_is_not_utf8_is_counted_and_journaled(root: Path) -> None:
    put(root, "out/a")
    os.close(os.open(os.fsencode(root) + b"/out/\xff", os.O_CREAT | os.O_WRONLY))
    result = one(root, "count: out/* == 2")
    assert result.passed
    assert msgspec.json.decode(msgspec.json.encode(result), type=CheckResult) == result


def test_a_pattern_with_several_depths_counts_each_file_once(root: Path) -> None:
    put(root, "a/b/c/d.csv")
    assert one(root, "count: **/*/**/*.csv == 1").passed


def test_a_walk_over_too_many_names_fails_clearly(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_glob, "glob_entries_max", 3)
    for number in range(4):
        put(root, f"out/{number}")
    assert "more than 3 names" in one(root, "count: out/* == 4").detail


# Scripts.


def test_a_script_passes_on_exit_code_zero(root: Path) -> None:
    result = one(root, "script: true")
    assert result.passed
    assert result.detail == "exit code 0; 0 bytes of output"


def test_a_script_fails_on_another_code_and_shows_the_end_of_its_output(root: Path) -> None:
    result = one(root, "script: echo said; echo complained >&2; exit 3")
    assert not result.passed
    assert result.detail.startswith("exit code 3; 16 bytes of output, sha256 ")
    assert sha256(b"said\ncomplained\n") in result.detail
    assert result.detail.endswith(":\nsaid\ncomplained")


def test_a_script_that_dies_of_a_signal_fails(root: Path) -> None:
    result = one(root, "script: kill -9 $$")
    assert not result.passed
    assert result.detail.startswith("ended by signal 9")


def test_a_script_runs_in_the_workspace_with_the_given_environment_only(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "x")
    entry = 'script: test "$PWD" -ef . && test "$PERDURE_NODE" = N1 -a -z "$SECRET_OF_THE_PARENT"'
    assert one(root, entry).passed
    put(root, "here")
    assert one(root, "script: test -f here").passed
    (root / "sub").mkdir()
    assert one(root, "script: test -f ../here", cwd=str(root / "sub")).passed


def test_a_script_reads_end_of_file_from_its_input(root: Path) -> None:
    assert one(root, 'script: test -z "$(cat)"').passed


def test_an_argument_vector_is_run_without_a_shell(root: Path) -> None:
    result = one(root, {"script": [sys.executable, "-c", "import sys; print(sys.argv[1])", "$a *"]})
    assert result.passed
    assert result.detail.endswith("$a *")


@pytest.mark.parametrize("command", [["no-such-program"], ["/"]])
def test_a_script_that_cannot_be_started_fails(root: Path, command: list[str]) -> None:
    result = one(root, {"script": command})
    assert not result.passed
    assert "could not be started" in result.detail
    assert command[0] in result.detail


def test_a_script_that_prints_without_measure_is_cut_to_its_end(root: Path) -> None:
    entry = "script: head -c 5000000 /dev/zero | tr '\\0' 'x'; echo; echo the last line; exit 1"
    result = one(root, entry)
    assert len(result.detail) <= verify.detail_chars_max
    assert "5000015 bytes of output" in result.detail
    assert result.detail.endswith("xxx\nthe last line")


def holds_the_pipe(root: Path, entry: dict[str, Any], **more: Any) -> tuple[CheckResult, bool]:
    """Run a script of which some process keeps ``fifo`` open, and say whether one lives on."""
    os.mkfifo(root / "fifo")
    reader = os.open(root / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(root / "fifo", os.O_WRONLY)
    try:
        result = one(root, entry, **more)
        # Only a pipe that has had a writer is hung up: ours, if the script was stopped too early.
        os.close(writer)
        watch = select.poll()
        watch.register(reader, select.POLLHUP)
        # The last writer's end hangs the pipe up; the death of a killed process takes a moment.
        return result, not watch.poll(10_000)
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    "command",
    [
        "exec 9>fifo; sleep 300 & sleep 300",
        "exec 9>fifo; (trap '' TERM; sleep 300; sleep 300) & sleep 300",
        "exec 9>fifo; trap '' TERM; echo started; sleep 300; sleep 300",
        "exec 9>fifo; exec >&- 2>&-; sleep 300",
        "exec 9>fifo; yes",
    ],
)
def test_a_script_out_of_time_is_stopped_with_its_whole_group(
    root: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(script, "term_grace_s", 0.2)
    result, lives_on = holds_the_pipe(root, {"script": {"run": command, "timeout": 0.5}})
    assert not result.passed
    assert result.detail.startswith("timed out after 0.5 s; its process group was stopped")
    assert not lives_on


def test_the_limit_of_the_caller_holds_where_the_check_names_none(root: Path) -> None:
    result = one(root, "script: sleep 300", timeout_s=0.2)
    assert result.detail.startswith("timed out after 0.2 s")


def test_a_script_may_clean_up_when_it_runs_out_of_time(root: Path) -> None:
    entry = {"script": {"run": "trap 'echo cleaned; exit 0' TERM; sleep 300 & wait", "timeout": 1}}
    result = one(root, entry)
    assert not result.passed
    assert result.detail.endswith("cleaned")


def test_what_a_finished_script_leaves_in_its_group_is_killed(root: Path) -> None:
    command = "exec 9>fifo; sleep 300 & echo ready"
    result, lives_on = holds_the_pipe(root, {"script": command})
    assert result.passed
    assert "processes it left behind were killed" in result.detail
    assert result.detail.endswith("ready")
    assert not lives_on


def test_a_process_that_left_the_group_does_not_hold_the_check_up(root: Path) -> None:
    # It keeps the script's output open; the check must not wait for it.
    command = "setsid sleep 300 & echo $! > pid; echo ready"
    result = one(root, {"script": {"run": command, "timeout": 20}})
    try:
        assert result.passed
        assert result.detail.endswith("ready")
    finally:
        subprocess.run(["kill", "-9", (root / "pid").read_text().strip()], check=False)


def test_an_interrupt_does_not_leave_the_script_running(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "fifo")
    reader = os.open(root / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    watch = select.poll()
    watch.register(reader, select.POLLIN)

    def interrupted(self: object, timeout: float | None = None) -> int:
        monkeypatch.undo()
        assert watch.poll(10_000)  # the script is up and holds the pipe
        raise KeyboardInterrupt

    try:
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one(root, "script: exec 9>fifo; echo up >&9; sleep 300")
        assert os.read(reader, 10) == b"up\n"
        watch.modify(reader, select.POLLHUP)
        assert watch.poll(10_000)
    finally:
        os.close(reader)


def test_a_flood_from_outside_the_group_does_not_hold_the_check_up(root: Path) -> None:
    entry = {"script": {"run": "setsid yes & echo $! > pid", "timeout": 20}}
    result = one(root, entry)
    subprocess.run(["kill", "-9", (root / "pid").read_text().strip()], check=False)
    assert result.passed


# Ledgers.


def ledger(root: Path, *lines: str, path: str = "artifacts/N1/ledger.jsonl") -> None:
    put(root, path, "".join(f"{line}\n" for line in lines))


def unit(unit_id: object, status: str) -> str:
    return json.dumps({"unit_id": unit_id, "status": status, "ts": "2026-11-30T00:00:00Z"})


def test_a_complete_ledger_passes_by_the_last_status_of_each_unit(root: Path) -> None:
    ledger(root, unit("u1", "fail"), unit("u2", "skip"), unit("u1", "ok"), unit(3, "skip-evidence"))
    result = one(root, {"units": {"total": 3}})
    assert result.passed
    assert result.detail == "artifacts/N1/ledger.jsonl: all 3 units are done."


def test_a_ledger_elsewhere_is_named(root: Path) -> None:
    ledger(root, unit("u1", "ok"), path="l.jsonl")
    assert one(root, "units: l.jsonl").passed
    assert not one(root, "units").passed


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([unit("u1", "ok"), unit("u1", "fail"), unit("u2", "ok")], "unit u1 failed"),
        ([unit("u1", "ok"), unit("u2", "ok"), '{"unit_id": "u3", "st'], "line 3 is not a ledger"),
        ([unit("u1", "ok"), unit("u2", "done")], "line 2 has the unknown status 'done'"),
        ([unit("u1", "ok")], "it has 1 units, not 2"),
        ([unit("u1", "ok"), unit("u2", "ok"), unit("u3", "ok")], "it has 3 units, not 2"),
        (["[]", unit("u1", "ok"), unit("u2", "ok")], "line 1 is not a ledger line"),
        (["", unit("u1", "ok"), unit("u2", "ok"), "nonsense"], "line 4 is not a ledger line"),
        (['{"status": "ok"}', unit("u1", "ok"), unit("u2", "ok")], "missing required field"),
    ],
)
def test_an_incomplete_ledger_fails(root: Path, lines: list[str], said: str) -> None:
    ledger(root, *lines)
    result = one(root, {"units": {"total": 2}})
    assert not result.passed
    assert said in result.detail


def test_an_empty_ledger_is_no_proof_unless_nothing_was_expected(root: Path) -> None:
    ledger(root)
    assert not one(root, "units").passed
    assert one(root, {"units": {"total": 0}}).passed
    assert not one(root, {"units": {"ledger": "missing.jsonl", "total": 0}}).passed


# The whole.


def test_every_criterion_is_run_and_itemised_whatever_failed_before(root: Path) -> None:
    put(root, "a")
    entries = ["exists: missing", "exists: a", "script: exit 1", "audit: sound?", "nonempty: a"]
    results = run(root, *entries)
    assert [result.passed for result in results] == [False, True, False, False, True]
    assert [result.check for result in results] == [
        "exists", "exists", "script", "audit", "nonempty",
    ]  # fmt: skip


@pytest.mark.parametrize(("entry", "level"), [("audit: ok?", "V2"), ("human: ok?", "V3")])
def test_judgement_is_left_to_those_who_can_judge(root: Path, entry: str, level: str) -> None:
    result = one(root, entry)
    assert not result.passed
    assert result.level == level
    assert f"level {level}" in result.detail


def test_a_record_that_is_no_legal_criterion_is_a_failed_result(root: Path) -> None:
    put(root, "a")
    criteria = [
        Criterion("exists", {"path": "../../etc/passwd"}),
        Criterion("matches", {"path": "a", "pattern": "("}),
        Criterion("exists", {"path": "a"}),
    ]
    results = run_checks(
        RealDisk(), str(root), "N1", criteria, environment=ENVIRONMENT, timeout_s=1
    )
    assert [result.passed for result in results] == [False, False, True]
    assert "criterion_invalid (PL-4)" in results[0].detail
    assert results[0].inputs == ()


def test_every_method_can_be_run_and_says_how(root: Path) -> None:
    assert set(verify._CHECKS) == set(verify._HOW) == set(CHECK_METHODS)
    assert all(text.endswith(".") for text in verify._HOW.values())


def test_results_are_the_same_when_run_again_and_survive_the_journal(root: Path) -> None:
    put(root, "a.json", json.dumps({"name": "Ada"}))
    entries = ["exists: a.json", "count: *.md == 0", "script: echo fine", "matches: a.json Ada",
               {"json-schema": {"path": "a.json", "schema": PERSON}}]  # fmt: skip
    first, second = run(root, *entries), run(root, *entries)
    assert first == second
    assert all(result.passed for result in first)
    assert msgspec.json.decode(msgspec.json.encode(first), type=list[CheckResult]) == first
