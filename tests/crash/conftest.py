"""Where the simulated crashes happen: in memory, where there is such a file system.

Nothing in here is ever synced, so a disk would add only its waiting time.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from tests.crash.tally import Tally, tally_of

IN_MEMORY = "/dev/shm"


@pytest.fixture
def workspace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An empty directory, gone after the test unless it failed."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield os.path.realpath(tmp_path_factory.mktemp("workspace"))
        return
    directory = tempfile.mkdtemp(prefix="crash-", dir=IN_MEMORY)
    failed_before = request.session.testsfailed
    yield directory
    if request.session.testsfailed == failed_before:
        shutil.rmtree(directory)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts what a test tries, for the line at the end of the session."""
    return tally_of(request)
