"""What the conformance tests of one workspace start from."""

from collections.abc import Iterator

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime


@pytest.fixture
def host(workspace: str) -> Host:
    """A simulated computer with an empty workspace."""
    return Host(workspace)


@pytest.fixture
def rt(host: Host) -> Iterator[HaltRuntime]:
    """The coordinator of a new task on it."""
    with host.open() as runtime:
        yield runtime
