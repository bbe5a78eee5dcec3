"""What every test shares: a repeatable Hypothesis, and an empty directory to work in.

Property tests are deterministic unless asked otherwise, so that a red run is red again. To look
for new counterexamples: ``make test ARGS='--hypothesis-profile=explore'``; the failing example is
printed with the line that reproduces it. The order of the tests is random, with its seed at the
top of the output and, because a long run scrolls it away, once more below a failure.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from tests.crash import tally

BEGAN = time.monotonic()

# No deadline: a slow machine is not a failure. The workspace fixture is one directory for all
# examples of a property on purpose; such a test makes its own directories inside.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=2_000,
)
settings.load_profile("repeatable")


@pytest.fixture
def workspace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty directory, as an absolute path without symbolic links."""
    return os.path.realpath(tmp_path_factory.mktemp("workspace"))


def pytest_configure(config: pytest.Config) -> None:
    tally.settle_seed(config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """What the crash tests tried; and how to get the same order again, where one looks for it."""
    tally.say(terminalreporter, BEGAN)
    seed = config.getoption("randomly_seed", None)
    if exitstatus != pytest.ExitCode.OK and isinstance(seed, int):
        terminalreporter.write_line(f"The same order again: --randomly-seed={seed}")
