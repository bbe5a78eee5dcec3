"""What is said about the ground."""

import pytest

from perdure.selftest.ground import Mount, mount_of, warnings_for

MOUNTS: list[Mount] = [
    ("ext4", "/", "/dev/a"),
    ("nfs4", "/data", "host:/x"),
    ("xfs", "/data/local", "/dev/b"),
    ("tmpfs", "/data/local", "none"),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/srv", "ext4"),
        ("/data", "nfs4"),
        ("/database", "ext4"),
        ("/data/x", "nfs4"),
        ("/data/local/y", "tmpfs"),
    ],
)
def test_the_nearest_and_latest_mount_counts(path: str, kind: str) -> None:
    assert mount_of(path, MOUNTS)[0] == kind


def test_a_system_that_does_not_tell_is_unknown() -> None:
    assert mount_of("/x", [])[0] == "unknown"


@pytest.mark.parametrize(
    ("kind", "sync_us", "word"),
    [
        ("tmpfs", 1.0, "in memory"),
        ("nfs4", 900.0, "network"),
        ("fuse.sshfs", 900.0, "network"),
        ("9p", 900.0, "network"),
        ("overlay", 900.0, "container"),
        ("ext4", 3.0, "power cut"),
    ],
)
def test_doubtful_ground_gets_a_warning(kind: str, sync_us: float, word: str) -> None:
    (warning,) = warnings_for(kind, sync_us)
    assert word in warning


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "apfs", "unknown"])
def test_a_local_disk_gets_none(kind: str) -> None:
    assert warnings_for(kind, 400.0) == []
