"""Syncs of many files at once: each is made, and a failure of one is told."""

import errno
import threading
from pathlib import Path

import pytest

from perdure.errors import StorageError
from perdure.runtime.batching import make_durable, sync_all, syncs_alone_max
from perdure.storage.disk import RealDisk

MANY = 3 * syncs_alone_max


class Recording(RealDisk):
    """The real disk; says what was synced, and lets one path fail."""

    def __init__(self, failing: str = "") -> None:
        super().__init__()
        self.failing = failing
        self.synced: list[str] = []

    def sync_file(self, path: str) -> None:
        if path == self.failing:
            raise StorageError.from_os(OSError(errno.EIO, "no"), path, "Syncing")
        super().sync_file(path)
        self.synced.append(path)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.synced.append(path)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    made = [tmp_path / f"d{number % 2}" / str(number) for number in range(MANY)]
    for path in made:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return [str(path) for path in made]


@pytest.mark.parametrize("count", [0, 1, syncs_alone_max, MANY])
def test_each_file_is_synced_once_and_each_directory_once(paths: list[str], count: int) -> None:
    disk = Recording()
    make_durable(disk, paths[:count])
    directories = {path.rpartition("/")[0] for path in paths[:count]}
    assert sorted(disk.synced) == sorted([*paths[:count], *directories])


@pytest.mark.parametrize("count", [1, MANY])
def test_a_sync_that_fails_is_told(paths: list[str], count: int) -> None:
    disk = Recording(failing=paths[count - 1])
    with pytest.raises(StorageError, match="EIO"):
        sync_all(disk, paths[:count], ())


def test_several_threads_may_sync_many_files_at_once(paths: list[str]) -> None:
    disks = [Recording() for _ in range(4)]
    threads = [threading.Thread(target=sync_all, args=(disk, paths, ())) for disk in disks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(disk.synced) for disk in disks] == [sorted(paths)] * 4
