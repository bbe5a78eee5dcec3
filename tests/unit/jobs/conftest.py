"""A machine for tests of a job."""

import pytest
from tests.unit.jobs.sim_host import SimHost


@pytest.fixture
def host() -> SimHost:
    return SimHost()
