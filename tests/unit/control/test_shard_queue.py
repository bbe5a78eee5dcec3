"""Which units go to the next worker: packing, halving, order and rounds."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from perdure.control.shard_queue import Allowed, Shard, ShardQueue

ALL = Allowed()
UNTOUCHED = Allowed(untouched=True, once_dead=False, rest=False)


def queue_of(count: int, *, size: int = 3, again: tuple[int, ...] = ()) -> ShardQueue:
    fresh = array("L", [n for n in range(count) if n not in again])
    return ShardQueue(fresh, again, size=size, retry_wait_s=1.0)


def drained(queue: ShardQueue, allowed: Allowed = ALL, *, units_max: int = 100) -> list[Shard]:
    found = []
    while queue.has(allowed):
        found.append(queue.take(allowed, units_max=units_max))
    return found


def test_fresh_units_are_packed_in_their_order() -> None:
    assert [s.units for s in drained(queue_of(7))] == [(0, 1, 2), (3, 4, 5), (6,)]


def test_units_that_failed_in_former_runs_go_first_and_are_not_untouched() -> None:
    queue = queue_of(5, again=(3,))
    assert [s.units for s in drained(queue, UNTOUCHED)] == [(0, 1, 2), (4,)]
    assert queue.take(Allowed(), units_max=3) == Shard((3,), 1)


def test_what_is_left_of_a_dead_shard_is_next_and_says_what_is_done() -> None:
    queue = queue_of(6)
    shard = queue.take(Allowed(), units_max=3)
    queue.put_back(shard, [2], landed=True, died=True)
    assert queue.take(Allowed(), units_max=3) == Shard((2,), 1, (0, 1))


def test_shard_that_landed_nothing_comes_back_in_halves() -> None:
    queue = queue_of(3)
    shard = queue.take(Allowed(), units_max=3)
    queue.put_back(shard, [0, 1, 2], landed=False, died=True)
    assert [s.units for s in drained(queue)] == [(0,), (1, 2)]


def test_what_has_died_twice_waits_for_what_is_untouched() -> None:
    queue = queue_of(6)
    shard = queue.take(Allowed(), units_max=3)
    queue.put_back(shard._replace(deaths=1), [0], landed=True, died=True)
    assert [s.units for s in drained(queue)] == [(3, 4, 5), (0,)]


def test_what_died_is_not_taken_where_only_untouched_work_may_go() -> None:
    queue = queue_of(6)
    shard = queue.take(Allowed(), units_max=3)
    queue.put_back(shard, [1, 2], landed=True, died=True)
    assert [s.units for s in drained(queue, UNTOUCHED)] == [(3, 4, 5)]
    assert not queue.is_empty


def test_one_unit_can_be_taken_and_the_rest_stays() -> None:
    queue = queue_of(3)
    assert queue.take(Allowed(), units_max=1).units == (0,)
    assert [s.units for s in drained(queue)] == [(1, 2)]


def test_shard_that_could_not_be_sent_is_next_again() -> None:
    queue = queue_of(5)
    shard = queue.take(Allowed(), units_max=3)
    queue.give_back(shard)
    assert queue.untouched == 5
    assert queue.take(Allowed(), units_max=3) == shard


def test_too_large_a_shard_is_split_and_still_untouched() -> None:
    queue = queue_of(4, size=4)
    queue.split(queue.take(Allowed(), units_max=4))
    assert [(s.units, s.deaths) for s in drained(queue)] == [((0, 1), 0), ((2, 3), 0)]


def test_failed_units_wait_for_the_others_and_longer_each_round() -> None:
    queue = queue_of(1)
    queue.take(Allowed(), units_max=3)
    queue.fail(0)
    queue.plan_round(10.0, idle=False)
    assert queue.due_in_s(10.0) is None
    queue.plan_round(10.0, idle=True)
    assert queue.due_in_s(10.0) == 1.0
    assert queue.due_in_s(10.5) == 0.5
    assert not queue.has(Allowed())
    queue.plan_round(11.0, idle=True)
    assert queue.take(Allowed(), units_max=3).units == (0,)
    queue.fail(0)
    queue.plan_round(20.0, idle=True)
    assert queue.due_in_s(20.0) == 2.0


@given(
    st.integers(1, 30), st.integers(1, 7),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60),
)  # fmt: skip
def test_no_unit_is_lost_or_in_two_shards(
    count: int, size: int, ends: list[tuple[bool, int]]
) -> None:
    """Workers that land some of their first units, and die or not: each unit lands once."""
    queue = queue_of(count, size=size)
    landed: list[int] = []
    endings = iter(ends)
    while queue.has(Allowed()):
        shard = queue.take(Allowed(), units_max=size)
        died, number = next(endings, (False, size))
        done = shard.units[:number] if died else shard.units
        landed += done
        queue.put_back(shard, shard.units[len(done) :], landed=bool(done), died=died)
    assert sorted(landed) == list(range(count))
    assert queue.is_empty
