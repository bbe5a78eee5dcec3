"""Paths that cannot leave the workspace, names that are the runtime's, and finding a workspace."""

import os

import pytest

from perdure.errors import NotFoundError, PathError, UsageError
from perdure.storage.disk import RealDisk
from perdure.storage.workspace import (
    Layout,
    find_project,
    find_workspace,
    is_workspace,
    normal_path,
    reserved_reason,
    resolve_inside,
    set_current,
)


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def make_workspace(disk: RealDisk, path: str) -> str:
    disk.make_dirs(path)
    disk.replace(f"{path}/journal.jsonl", b"{}\n", durable=False)
    return path


# ------------------------------------------------------------------------------------------- layout


def test_layout_is_the_tree_of_the_protocol() -> None:
    at = Layout("/w/")
    assert at.root == "/w"
    assert at.journal == "/w/journal.jsonl"
    assert at.journal_lock == "/w/.journal.lock"
    assert at.lease == "/w/lease.json"
    assert at.snapshot == "/w/.snapshot.json"
    assert at.task_graph == "/w/task-graph.json"
    assert at.checkpoint == "/w/checkpoint.json"
    assert (at.artifacts, at.registry) == ("/w/artifacts", "/w/artifacts/registry.json")
    assert (at.spool, at.contracts) == ("/w/steering/spool", "/w/contracts")
    assert [at.tmp, at.recovered, at.logs, at.runs] == [
        "/w/tmp", "/w/tmp/recovered", "/w/tmp/logs", "/w/tmp/run",
    ]  # fmt: skip
    assert at.node_scope("N-042.3") == "/w/artifacts/N-042.3"
    assert at.contract("inv-1") == "/w/contracts/inv-1.json"
    assert at.log("N1", "inv-1") == "/w/tmp/logs/N1/inv-1.log"
    assert at.run_record("inv-1") == "/w/tmp/run/inv-1.json"


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x", ".hidden", "a\n", "a" * 65, "ä"])
def test_no_path_is_made_of_what_is_not_an_id(name: str) -> None:
    at = Layout("/w")
    for build in (at.node_scope, at.contract, at.run_record, lambda n: at.log(n, "inv-1")):
        with pytest.raises(PathError):
            build(name)


def test_relative_workspace_is_refused() -> None:
    with pytest.raises(UsageError, match="absolute"):
        Layout("w")


# -------------------------------------------------------------------------------------- path safety


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("a", "a"), ("./a//b", "a/b"), ("a/./b/", "a/b"), ("a b/x.md", "a b/x.md"),
        ("...", "..."), ("a..b/..c", "a..b/..c"), ("über/ß", "über/ß"), ("~/a", "~/a"),
    ],
)  # fmt: skip
def test_paths_are_normalised(given: str, normal: str) -> None:
    assert normal_path(given) == normal


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "./", "/", "//", "/etc/passwd", "..", "../x", "a/../b", "a/..", "./../x",
        "C:", "C:/x", "c:x", "a\\b", "..\\x", "\\\\host\\share", "a\0b", "\0", "a/\udcff",
    ],
)  # fmt: skip
def test_paths_that_cannot_be_in_a_workspace_are_refused(
    disk: RealDisk, workspace: str, path: str
) -> None:
    with pytest.raises(PathError) as refused:
        normal_path(path)
    assert refused.value.rule == "PL-4"
    assert refused.value.fix
    with pytest.raises(PathError):
        resolve_inside(disk, workspace, path)


def test_resolved_path_is_absolute_and_need_not_exist(disk: RealDisk, workspace: str) -> None:
    assert resolve_inside(disk, workspace, "./a//new/file") == f"{workspace}/a/new/file"
    assert os.listdir(workspace) == []


def test_absolute_path_into_the_workspace_is_refused_with_the_relative_one(
    disk: RealDisk, workspace: str
) -> None:
    with pytest.raises(PathError) as refused:
        resolve_inside(disk, workspace, f"{workspace}/artifacts/N1/x")
    assert "'artifacts/N1/x'" in refused.value.fix


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        pytest.param("out", "{outside}", "out/secret", id="directory link"),
        pytest.param("out", "{outside}", "out/new/deep", id="directory link, new file"),
        pytest.param("out", "{outside}", "out", id="the directory link itself"),
        pytest.param("f", "{outside}/secret", "f", id="file link"),
        pytest.param("f", "{outside}/missing", "f", id="dangling file link"),
        pytest.param("up", "..", "up/x", id="relative link"),
        pytest.param("twin", "{workspace}-twin", "twin/x", id="sibling with our name as a prefix"),
    ],
)
def test_symbolic_link_out_of_the_workspace_is_refused(
    disk: RealDisk, workspace: str, link: str, target: str, path: str
) -> None:
    outside = f"{workspace}-outside"
    disk.make_dirs(outside)
    disk.replace(f"{outside}/secret", b"", durable=False)
    os.symlink(target.format(outside=outside, workspace=workspace), f"{workspace}/{link}")
    with pytest.raises(PathError, match="symbolic link") as refused:
        resolve_inside(disk, workspace, path)
    assert refused.value.rule == "PL-4"


def test_chain_of_links_that_ends_outside_is_refused(disk: RealDisk, workspace: str) -> None:
    os.symlink("b", f"{workspace}/a")
    os.symlink("/etc", f"{workspace}/b")
    with pytest.raises(PathError):
        resolve_inside(disk, workspace, "a/passwd")


def test_symbolic_link_that_stays_inside_is_allowed_and_kept(
    disk: RealDisk, workspace: str
) -> None:
    disk.make_dirs(f"{workspace}/real")
    disk.replace(f"{workspace}/real/f", b"", durable=False)
    os.symlink("real", f"{workspace}/dir")
    os.symlink(f"{workspace}/real/f", f"{workspace}/file")
    assert resolve_inside(disk, workspace, "dir/f") == f"{workspace}/dir/f"
    assert resolve_inside(disk, workspace, "file") == f"{workspace}/file"


def test_workspace_that_is_reached_through_a_link_contains_its_files(
    disk: RealDisk, workspace: str
) -> None:
    disk.make_dirs(f"{workspace}/w/a")
    os.symlink("w", f"{workspace}/alias")
    assert resolve_inside(disk, f"{workspace}/alias", "a/f") == f"{workspace}/alias/a/f"


# --------------------------------------------------------------------------------------- reserved


@pytest.mark.parametrize(
    "path",
    [
        "journal.jsonl", "journal-mirror.jsonl", "journal/x", "Journal.JSONL", "lease",
        "lease.json", "lease.old/x", "task-graph.json", "checkpoint.json", "anything.json",
        "checkpoint.json/x",
        ".journal.lock", ".snapshot.json", ".git/config", "./.hidden", "contracts/inv.json",
        "contracts", "steering/spool/x.json", "sops/a.yaml", "instances/i/x", "docs/progress.md",
        "TMP/x", "tmp/recovered/x", "artifacts", "artifacts/registry.json", "artifacts/old/A-1/x",
        "artifacts/old", "artifacts/N1/.out.md.tmp-12-0", ".//journal.jsonl", "artifacts//Old/x",
    ],
)  # fmt: skip
def test_names_of_the_runtime_are_reserved(path: str) -> None:
    assert reserved_reason(path)
    assert reserved_reason(path, "N1")


@pytest.mark.parametrize(
    "path",
    [
        "artifacts/N1/out.md", "artifacts/N1/registry.json", "artifacts/N1/old/x", "out/data.json",
        "report.md", "src/journal.py", "my-journal.md", "artifacts/N1/.well-known/x", "released/x",
        "artifacts/N1/tmp/x", "leases.txt", "tmpfile",
    ],
)  # fmt: skip
def test_everything_else_is_free_for_outputs(path: str) -> None:
    assert reserved_reason(path) is None
    assert reserved_reason(path, "N1") is None


@pytest.mark.parametrize("path", ["artifacts/N2/out.md", "artifacts/N10/x", "artifacts/report.md"])
def test_place_of_another_node_is_reserved(path: str) -> None:
    assert reserved_reason(path) is None
    assert "N1" in (reserved_reason(path, "N1") or "")


def test_place_of_the_node_is_not_itself_an_output() -> None:
    assert "itself" in (reserved_reason("artifacts/N1", "N1") or "")


def test_reserved_names_are_asked_of_legal_paths_only() -> None:
    with pytest.raises(PathError):
        reserved_reason("../x")


# ----------------------------------------------------------------------------- finding a workspace


def test_directory_is_a_workspace_once_its_journal_is_there(disk: RealDisk, workspace: str) -> None:
    assert not is_workspace(disk, workspace)
    disk.make_dirs(f"{workspace}/odd/journal.jsonl")
    assert not is_workspace(disk, f"{workspace}/odd")
    assert is_workspace(disk, make_workspace(disk, f"{workspace}/w"))


def test_current_task_of_the_nearest_project_is_found_from_below(
    disk: RealDisk, workspace: str
) -> None:
    project = f"{workspace}/.perdure"
    task = make_workspace(disk, f"{project}/tasks/T-1")
    make_workspace(disk, f"{project}/tasks/T-2")
    set_current(disk, project, "T-1")
    disk.make_dirs(f"{workspace}/src/deep")
    for start in (workspace, f"{workspace}/src/deep", project, f"{project}/tasks"):
        assert find_workspace(disk, start, None) == task
        assert find_workspace(disk, start, "") == task
        assert find_project(disk, start) == project
    set_current(disk, project, "T-2")
    assert find_workspace(disk, workspace, None) == f"{project}/tasks/T-2"


def test_directory_inside_a_workspace_means_that_workspace(disk: RealDisk, workspace: str) -> None:
    project = f"{workspace}/.perdure"
    make_workspace(disk, f"{project}/tasks/T-1")
    other = make_workspace(disk, f"{project}/tasks/T-2")
    set_current(disk, project, "T-1")
    disk.make_dirs(f"{other}/artifacts/N1")
    assert find_workspace(disk, other, None) == other
    assert find_workspace(disk, f"{other}/artifacts/N1", None) == other
    nested = make_workspace(disk, f"{other}/instances/inv-1")
    assert find_workspace(disk, nested, None) == nested


def test_nearest_project_wins(disk: RealDisk, workspace: str) -> None:
    for project, task in ((f"{workspace}/.perdure", "T-1"), (f"{workspace}/in/.perdure", "T-2")):
        make_workspace(disk, f"{project}/tasks/{task}")
        set_current(disk, project, task)
    found = find_workspace(disk, f"{workspace}/in", None)
    assert found == f"{workspace}/in/.perdure/tasks/T-2"


def test_linked_project_directory_counts(disk: RealDisk, workspace: str) -> None:
    make_workspace(disk, f"{workspace}/elsewhere/tasks/T-1")
    set_current(disk, f"{workspace}/elsewhere", "T-1")
    disk.make_dirs(f"{workspace}/p")
    os.symlink("../elsewhere", f"{workspace}/p/.perdure")
    found = find_workspace(disk, f"{workspace}/p", None)
    assert found == f"{workspace}/p/.perdure/tasks/T-1"


def test_environment_goes_before_everything_that_is_found(disk: RealDisk, workspace: str) -> None:
    here = make_workspace(disk, f"{workspace}/here")
    named = make_workspace(disk, f"{workspace}/named")
    assert find_workspace(disk, here, named) == named
    assert find_workspace(disk, here, "../named") == named
    with pytest.raises(NotFoundError, match="PERDURE_WORKSPACE") as missing:
        find_workspace(disk, here, f"{workspace}/nowhere")
    assert missing.value.fix


def test_nothing_found_says_how_to_begin(disk: RealDisk, workspace: str) -> None:
    assert find_project(disk, workspace) is None
    with pytest.raises(NotFoundError) as missing:
        find_workspace(disk, workspace, None)
    assert "perdure init" in missing.value.fix
    assert missing.value.exit_code == 3


def test_project_without_a_current_task_says_how_to_begin(disk: RealDisk, workspace: str) -> None:
    disk.make_dirs(f"{workspace}/.perdure")
    with pytest.raises(NotFoundError, match="no current task") as missing:
        find_workspace(disk, workspace, None)
    assert "perdure init" in missing.value.fix


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"T-9\n", b"../../../etc", b"x" * 5_000])
def test_pointer_to_nowhere_names_the_tasks_there_are(
    disk: RealDisk, workspace: str, content: bytes
) -> None:
    project = f"{workspace}/.perdure"
    make_workspace(disk, f"{project}/tasks/T-1")
    disk.replace(f"{project}/current", content, durable=False)
    with pytest.raises(NotFoundError) as missing:
        find_workspace(disk, workspace, None)
    assert missing.value.suggestions == ["T-1"]


@pytest.mark.parametrize("task_id", ["", "../x", "a/b", ".x"])
def test_only_an_id_becomes_current(disk: RealDisk, workspace: str, task_id: str) -> None:
    with pytest.raises(UsageError):
        set_current(disk, f"{workspace}/.perdure", task_id)
    assert os.listdir(workspace) == []
