"""What of a worker's directory counts, and files of lines as one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.control.shard_join import Duplicates, adjudicate, merge_jsonl
from perdure.core.model import id_key
from perdure.storage.disk import RealDisk
from perdure.testing import SimDisk

DISK = RealDisk()


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def worker(
    tmp_path: Path, findings: bytes | None = None, ledger: bytes | None = None
) -> tuple[str, Path]:
    directory = tmp_path / "shards" / "inv-1"
    directory.mkdir(parents=True)
    for name, data in (("findings.jsonl", findings), ("ledger.jsonl", ledger)):
        if data is not None:
            (directory / name).write_bytes(data)
    return str(directory), directory


def ok(*keys: str, **more: Any) -> bytes:
    return lines(*({"unit_id": key, "status": "ok"} | more for key in keys))


def found(*keys: str) -> bytes:
    return lines(*({"_key": key, "n": 1} for key in keys))


def test_unit_is_complete_with_both_lines_and_in_the_order_of_the_contract(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, found("b", "a", "c"), ok("a", "b"))
    seen = adjudicate(DISK, directory, ["a", "b", "c", "d"])
    assert [unit.key for unit in seen.landed] == ["a", "b"]
    assert seen.left == ("c", "d")
    assert seen.has_output


def test_directory_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    seen = adjudicate(DISK, str(tmp_path / "none"), ["a"])
    assert (seen.landed, seen.left, seen.has_output) == ((), ("a",), False)


@pytest.mark.parametrize(("content", "has_output"), [(b"", False), (b"x", True)])
def test_pd_h1_an_empty_file_is_no_output(tmp_path: Path, content: bytes, has_output: bool) -> None:
    directory, files = worker(tmp_path, b"", b"")
    (files / "files").mkdir()
    (files / "files" / "page.txt").write_bytes(content)
    assert adjudicate(DISK, directory, ["a"]).has_output == has_output


def test_last_line_without_its_end_does_not_count(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, found("a", "b").rstrip(b"\n"), ok("a", "b"))
    seen = adjudicate(DISK, directory, ["a", "b"])
    assert [unit.key for unit in seen.landed] == ["a"]
    assert seen.notices == ("the last line of its findings.jsonl was not finished",)


def test_bad_line_costs_its_unit_and_no_other(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, b"{nonsense\n" + found("a") + b'["a"]\n', ok("a"))
    seen = adjudicate(DISK, directory, ["a"])
    assert [unit.key for unit in seen.landed] == ["a"]
    assert len(seen.notices) == 2


def test_last_word_of_a_ledger_counts(tmp_path: Path) -> None:
    ledger = lines({"unit_id": "a", "status": "fail", "reason": "no"}) + ok("a")
    directory, _ = worker(tmp_path, found("a"), ledger)
    assert [u.key for u in adjudicate(DISK, directory, ["a"]).landed] == ["a"]


def test_of_two_findings_of_one_worker_the_later_counts_and_is_told(tmp_path: Path) -> None:
    findings = lines({"_key": "a", "n": 1}, {"_key": "a", "n": 2})
    directory, _ = worker(tmp_path, findings, ok("a"))
    seen = adjudicate(DISK, directory, ["a"])
    assert seen.landed[0].payload == {"n": 2}
    assert "two findings" in seen.notices[0]


def test_own_fields_of_the_log_are_left_out(tmp_path: Path) -> None:
    findings = lines({"_key": "a", "_hash": "x", "_at": "y", "_item": "z", "n": 1})
    directory, _ = worker(tmp_path, findings, ok("a"))
    assert adjudicate(DISK, directory, ["a"]).landed[0].payload == {"n": 1}


def test_numbers_name_units_as_their_texts_do(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, lines({"_key": 7}), lines({"unit_id": 7, "status": "ok"}))
    assert [u.key for u in adjudicate(DISK, directory, ["7"]).landed] == ["7"]


def test_given_up_unit_comes_with_its_reason(tmp_path: Path) -> None:
    ledger = lines({"unit_id": "a", "status": "fail", "reason": "unreadable"})
    directory, _ = worker(tmp_path, None, ledger)
    assert adjudicate(DISK, directory, ["a"]).failed == (("a", "unreadable"),)


def test_finding_that_the_schema_refuses_fails_its_unit(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, found("a", "b"), ok("a", "b"))
    seen = adjudicate(DISK, directory, ["a", "b"], errors_of=lambda value: ["$.n: too small"])
    assert [key for key, _ in seen.failed] == ["a", "b"]
    assert "too small" in seen.failed[0][1]


def test_named_file_may_be_written_from_the_directory_or_the_workspace(tmp_path: Path) -> None:
    for number, named in enumerate(["out.txt", "artifacts/B/shards/inv-1/out.txt"]):
        directory, path = worker(tmp_path / str(number), found("a"), ok("a", artifact=named))
        (path / "out.txt").write_text("x", encoding="utf-8")
        assert adjudicate(DISK, directory, ["a"]).landed[0].artifact == f"{directory}/out.txt"


def test_file_outside_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    for number, named in enumerate(["../../secret", "/etc/passwd", "link", "way/secret"]):
        directory, path = worker(tmp_path / str(number), found("a"), ok("a", artifact=named))
        (path / "link").symlink_to(tmp_path / "secret")
        (path / "way").symlink_to(tmp_path)
        seen = adjudicate(DISK, directory, ["a"])
        assert [key for key, _ in seen.failed] == ["a"], named


def test_empty_file_is_no_result(tmp_path: Path) -> None:
    directory, path = worker(tmp_path, found("a"), ok("a", artifact="out.txt"))
    (path / "out.txt").touch()
    assert "is empty" in adjudicate(DISK, directory, ["a"]).failed[0][1]


def test_file_that_was_moved_to_its_place_already_is_there(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, found("a"), ok("a", artifact="out.txt"))
    seen = adjudicate(DISK, directory, ["a"], is_placed=lambda key: True)
    assert [unit.key for unit in seen.landed] == ["a"]


def test_findings_that_are_a_link_count_for_nothing(tmp_path: Path) -> None:
    directory, path = worker(tmp_path, None, ok("a"))
    (tmp_path / "other").write_bytes(found("a"))
    (path / "findings.jsonl").symlink_to(tmp_path / "other")
    seen = adjudicate(DISK, directory, ["a"])
    assert seen.left == ("a",)
    assert seen.notices == ("its findings.jsonl is a link, not a file",)


def test_notices_are_bounded(tmp_path: Path) -> None:
    directory, _ = worker(tmp_path, b"{\n" * 100, None)
    notices = adjudicate(DISK, directory, ["a"]).notices
    assert len(notices) == 6
    assert notices[-1] == "and 95 more of that"


def test_only_duplicates_that_differ_are_told(tmp_path: Path) -> None:
    log = tmp_path / "findings.jsonl"
    log.write_bytes(lines({"n": 1, "_key": "a", "_at": "t"}, {"n": 1, "_key": "b"}))
    seen = Duplicates()
    seen.add("a", {"n": 1}, "inv-1")
    seen.add("b", {"n": 2}, "inv-1")
    assert seen.differing(DISK, str(log)) == [("b", "inv-1")]


# Several files as one


def test_duplicates_with_half_a_character_are_compared_as_well(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"v":"\\ud800","_key":"a"}\n{"v":"\\ud801","_key":"b"}\n')
    duplicates = Duplicates()
    for key in ("a", "b"):
        duplicates.add(key, {"v": "\ud800"}, "inv-2")
    assert duplicates.differing(DISK, str(log)) == [("b", "inv-2")]


def put(tmp_path: Path, **files: bytes) -> list[str]:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [str(tmp_path / name) for name in files]


def test_merge_orders_by_number_and_not_by_arrival(tmp_path: Path) -> None:
    paths = put(tmp_path, W10=found("W10", "W2"), W9=found("W9"))
    merged = merge_jsonl(DISK, paths)
    assert [json.loads(line)["_key"] for line in merged.lines] == ["W2", "W9", "W10"]
    assert merge_jsonl(DISK, reversed(paths)) == merged


def test_merge_keeps_the_first_of_two_and_names_both_where_they_differ(tmp_path: Path) -> None:
    paths = put(
        tmp_path,
        w2=lines({"_key": "a", "n": 1}, {"_key": "b"}),
        w10=lines({"_key": "a", "n": 2}, {"_key": "b"}),
    )
    merged = merge_jsonl(DISK, paths)
    assert [json.loads(line) for line in merged.lines] == [{"_key": "a", "n": 1}, {"_key": "b"}]
    assert merged.repeated == 1
    assert [(c.key, c.kept, c.left_out) for c in merged.conflicts] == [
        ("a", f"{paths[0]}:1", f"{paths[1]}:1")
    ]


def test_merge_leaves_out_what_is_no_line_and_says_where(tmp_path: Path) -> None:
    [path] = put(tmp_path, w=b'{"_key": "a"}\n{"k": 1}\n[]\n{"_key": "b"}')
    merged = merge_jsonl(DISK, [path])
    assert merged.lines == [b'{"_key": "a"}']
    assert [entry.removeprefix(path).split(" ")[0] for entry in merged.bad] == [":2:", ":3:", ":"]


def test_merge_takes_any_field_and_numbers(tmp_path: Path) -> None:
    [path] = put(tmp_path, w=lines({"id": 10}, {"id": 9}))
    assert merge_jsonl(DISK, [path], key="id").lines == [b'{"id": 9}', b'{"id": 10}']


@given(
    st.dictionaries(
        st.sampled_from([f"W{n}" for n in range(1, 13)]),
        st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), max_size=5),
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_merge_is_the_same_for_any_order_of_arrival(
    workers: dict[str, list[tuple[int, int]]], chance: Any
) -> None:
    disk = SimDisk()
    disk.make_dirs("/m")
    for name, units in workers.items():
        data = lines(*({"_key": f"u{key}", "n": n} for key, n in units))
        disk.replace(f"/m/{name}", data, durable=True)
    paths = [f"/m/{name}" for name in workers]
    merged = merge_jsonl(disk, paths)
    chance.shuffle(paths)
    assert merge_jsonl(disk, paths) == merged
    keys = [json.loads(line)["_key"] for line in merged.lines]
    assert keys == sorted({f"u{key}" for units in workers.values() for key, _ in units}, key=id_key)
