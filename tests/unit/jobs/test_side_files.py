"""Side files: one path for each key, inside the job, written whole."""

import errno
import re
import threading

import pytest
from tests.unit.jobs.sim_host import ROOT, SimHost

from perdure.errors import PathError, StorageError, UsageError
from perdure.jobs.job import CheckpointedJob
from perdure.jobs.lines import item_hash
from perdure.jobs.side_files import artifact_name

# Names


def test_the_path_is_made_from_the_key_and_the_same_in_every_process(host: SimHost) -> None:
    job = host.open()
    digest = item_hash("https://a.example/b?c")
    path = job.artifact_path("https://a.example/b?c", ".html")
    assert path == f"{ROOT}/files/{digest[:2]}/{digest}-https-a.example-b-c.html"
    host.kill()
    assert host.open().artifact_path("https://a.example/b?c", ".html") == path


def test_two_keys_never_share_a_path() -> None:
    keys = ["a/b", "a-b", "a b", "A-B", "a/b/", "x" * 60, "x" * 61, "..", "."]
    assert len({artifact_name(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    "key",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        "a\0b",
        "a\nb",
        "con",
        "\u202e\u2028",
        "x" * 5_000,
        "-rf",
        "~",
        "a..b",
    ],
)
def test_no_key_leads_out_of_the_folder(key: str) -> None:
    folder, shard, name = artifact_name(key).split("/")
    assert folder == "files"
    assert re.fullmatch("[0-9a-f]{2}", shard)
    assert re.fullmatch("[0-9a-f]{16}(-[A-Za-z0-9._-]+)?", name)
    assert ".." not in name
    assert len(name) < 100


@pytest.mark.parametrize(
    "suffix", ["/x", "..", "a..b", "\0", "\\x", ".html\n", "é", " ", ":x", "x" * 41, None, 3]
)
def test_a_suffix_is_only_the_end_of_a_name(suffix: str) -> None:
    with pytest.raises(UsageError) as caught:
        artifact_name("a", suffix)
    assert caught.value.code == "bad_suffix"


def test_the_folder_is_made_only_when_it_is_used(host: SimHost) -> None:
    job = host.open()
    job.artifact_path("a")
    job.record_finding("a")
    assert "files" not in host.names()


# Writing


def test_a_file_is_written_whole_and_every_name_above_it_is_safe(host: SimHost) -> None:
    job = host.open()
    first = len(host.disk.log)
    path = job.write_artifact("a", b"content", ".txt")
    assert path == job.artifact_path("a", ".txt")
    assert host.read(path.removeprefix(f"{ROOT}/")) == b"content"
    steps = host.write_steps(first)
    shard = item_hash("a")[:2]
    assert steps[:4] == ["mkdir files", "sync_dir job", f"mkdir {shard}", "sync_dir files"]
    assert steps[-1] == f"sync_dir {shard}"
    assert [step.split()[0] for step in steps[-5:-1]] == ["create", "write", "sync_file", "rename"]


def test_writing_again_overwrites(host: SimHost) -> None:
    job = host.open()
    job.write_artifact("a", b"first")
    path = job.write_artifact("a", bytearray(b"second"))
    assert host.read(path.removeprefix(f"{ROOT}/")) == b"second"
    job.write_artifact("a", memoryview(b"third"))  # type: ignore[arg-type]
    assert host.read(path.removeprefix(f"{ROOT}/")) == b"third"


def test_text_is_refused(host: SimHost) -> None:
    with pytest.raises(UsageError, match="not_bytes"):
        host.open().write_artifact("a", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["files", "shard"])
def test_a_folder_that_leads_out_of_the_job_is_refused_and_nothing_is_written(
    host: SimHost, where: str
) -> None:
    job = host.open()
    host.disk.make_dirs("/elsewhere")
    if where == "files":
        host.disk.symlink("/elsewhere", host.path("files"))
    else:
        host.disk.make_dirs(host.path("files"))
        host.disk.symlink("/elsewhere", host.path(f"files/{item_hash('a')[:2]}"))
    with pytest.raises(PathError, match="/elsewhere"):
        job.write_artifact("a", b"x")
    assert host.disk.list_dir("/elsewhere") == []
    job.record_finding("a")


def test_a_folder_that_leads_elsewhere_inside_the_job_is_fine(host: SimHost) -> None:
    job = host.open()
    host.disk.make_dirs(host.path("large"))
    host.disk.symlink("large", host.path("files"))
    job.write_artifact("a", b"x")
    assert host.disk.list_dir(host.path("large")) == [item_hash("a")[:2]]


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(host: SimHost) -> None:
    job = host.open()
    path = job.write_artifact("a", b"x")
    host.disk.write("/elsewhere/target", b"mine")
    host.disk.unlink(path, durable=False)
    host.disk.symlink("/elsewhere/target", path)
    job.write_artifact("a", b"y")
    assert host.disk.tree()["/elsewhere/target"] == b"mine"


def test_what_a_dead_process_left_half_written_goes_at_the_next_write_there(
    host: SimHost,
) -> None:
    job = host.open()
    path = job.write_artifact("a", b"x")
    folder, _, name = path.rpartition("/")
    host.disk.write(f"{folder}/.{name}.tmp-77-1", b"half")
    host.disk.write(f"{folder}/mine.txt", b"whole")
    job.write_artifact("a", b"y")
    assert len(host.disk.list_dir(folder)) == 3
    host.kill()
    host.open().write_artifact("a", b"z")
    assert host.disk.list_dir(folder) == [name, "mine.txt"] or host.disk.list_dir(folder) == [
        "mine.txt",
        name,
    ]


def test_a_write_that_fails_leaves_the_old_file_and_the_job_goes_on(host: SimHost) -> None:
    job = host.open()
    path = job.write_artifact("a", b"old")
    host.disk.fail(lambda op: op.kind == "write" and "/files/" in op.path, errno.ENOSPC)
    with pytest.raises(StorageError, match="disk_full"):
        job.write_artifact("a", b"new")
    assert host.read(path.removeprefix(f"{ROOT}/")) == b"old"
    job.record_error("a", "disk full")
    job.write_artifact("a", b"new")
    job.record_finding("a")


def test_threads_write_side_files_at_the_same_time(workspace: str) -> None:
    job = CheckpointedJob(workspace, "docs")
    keys = [str(n) for n in range(60)]

    def write(first: int) -> None:
        for key in keys[first::4]:
            job.write_artifact(key, key.encode())

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in keys:
        with open(job.artifact_path(key), "rb") as file:
            assert file.read() == key.encode()
    job.close()
