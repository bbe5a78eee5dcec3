"""The fault drill as a test: a short one in every run, long ones with ``make drill``."""

import os
import sys
from pathlib import Path

import pytest
from tests.drill.drill import Found, Size, drill

from perdure.control.confinement import capability

SHORT = Size(units=60, shard=4, slots=8, kills=3, hang_s=1.0, period=24)
LONG = Size(units=1_000, shard=5, slots=40, kills=10)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not capability().writes, reason="write scopes need Landlock"
)


def said(seed: int, found: Found) -> str:
    """What a failed drill has to tell."""
    return "\n".join([f"seed {seed}: {found}", *found.faults])


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.timeout(240)
def test_every_unit_is_done_once_whatever_workers_and_coordinators_do(
    tmp_path: Path, seed: int
) -> None:
    found = drill(tmp_path, seed, SHORT)
    assert not found.faults, said(seed, found)


@pytest.mark.drill_full
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(5))
def test_a_storm_over_forty_slots(tmp_path: Path, number: int) -> None:
    seed = int(os.environ.get("DRILL_SEED", "0")) or int.from_bytes(os.urandom(4)) + number
    found = drill(tmp_path, seed, LONG)
    print(f"seed {seed}: {found}")
    assert not found.faults, said(seed, found)
    assert {"B", "C"} & set(found.modes), said(seed, found)
