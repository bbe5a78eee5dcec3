"""A crash damages the last commit and no other: the first is a torn tail, the second corruption."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.codec import EMPTY_TIP, Commit, Scan, encode_commit, judge_tail
from perdure.core.events import Draft

NOISE = bytes((0x9E, 0x0A, 0x7B, 0x22, 0x00, 0xFF, 0x7D, 0x0A)) * 64


def note(text: str) -> Draft:
    nested = [{"seq": 7, "ts": "t"}, {"seq": 8, "ts": "u"}]  # looks like lines, and is a text
    return Draft("NOTE", "task", "T1", {"op": "note", "text": text, "nested": nested})


def commits(*sizes: int) -> list[Commit]:
    """Commits of so many events each."""
    found, tip = [], EMPTY_TIP
    for size in sizes:
        drafts = [note(f"number {n} of {size}") for n in range(size)]
        found.append(encode_commit(tip, drafts, ts="now", actor="a:b", epoch=1))
        tip = found[-1].tip
    return found


FIRST, MIDDLE, LAST = commits(1, 3, 3)
ONE, TWO, THREE = commits(1, 1, 1)
SHAPES = {
    "several lines": (FIRST, MIDDLE, LAST),
    "one line": (ONE, TWO, THREE),
    "one line, then several": tuple(commits(1, 1, 3)),
    "several lines, then one": tuple(commits(2, 3, 1)),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def torn(data: bytes) -> bool:
    """Whether everything behind the last whole commit may be cut."""
    scan = Scan()
    for _ in scan.commits([data]):
        pass
    assert scan.damage is not None, "nothing is damaged"
    return judge_tail(data[scan.tip.offset :], scan.tip)


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What a crash can make of the bytes of a commit."""
    size = len(data)
    ends = [at for at, byte in enumerate(data) if byte == 0x0A]
    for at in range(1, size):
        yield f"cut at {at}", data[:at]
        yield f"zeroed from {at}", data[:at] + bytes(size - at)
        yield f"noise from {at}", data[:at] + NOISE[: size - at]
    for end in ends:
        yield f"a hole before the line end at {end}", bytes(end + 1) + data[end + 1 :]
        yield f"a hole that leaves the newline at {end}", bytes(end) + data[end:]
        yield f"a hole around {end}", data[: end - 9] + bytes(20) + data[end + 11 :]
        yield f"the newline at {end} is zero", data[:end] + b"\0" + data[end + 1 :]
    yield "all zero", bytes(size)
    yield "the last newline is lost", data[:-1]


@each_shape
def test_whatever_happened_to_the_last_commit_is_a_torn_tail(shape: tuple[Commit, ...]) -> None:
    first, middle, last = shape
    for what, data in damages(last.data):
        assert torn(first.data + middle.data + data), what


@each_shape
def test_the_same_in_an_earlier_commit_is_corruption(shape: tuple[Commit, ...]) -> None:
    first, middle, last = shape
    for what, data in damages(middle.data):
        assert not torn(first.data + data + last.data), what


@each_shape
def test_a_missing_commit_is_corruption(shape: tuple[Commit, ...]) -> None:
    first, _, last = shape
    assert not torn(first.data + last.data)


@each_shape
def test_damage_in_the_first_commit_is_corruption(shape: tuple[Commit, ...]) -> None:
    first, middle, last = shape
    for what, data in damages(first.data):
        assert not torn(data + middle.data + last.data), what
        assert not torn(data + middle.data), what


def test_a_fragment_by_others_without_a_newline_is_a_torn_tail() -> None:
    assert torn(FIRST.data + b'{"seq":2,"ts":"now","actor":"x:y","kind":"NOTE","payload":{}}')
    assert torn(FIRST.data + b'{"t":"\xe2\x82')
    assert torn(FIRST.data + b"\0" * 4096)


def test_a_line_by_others_behind_damage_is_corruption() -> None:
    intact = b'{"seq":3,"ts":"now","actor":"x:y","kind":"NOTE","payload":{}}\n'
    assert not torn(FIRST.data + b'{"seq":2,"ts"\n' + intact)
    assert not torn(FIRST.data + b'{"seq":2,"ts"' + intact)


@given(
    at=st.integers(0, len(LAST.data) - 1),
    length=st.integers(1, 200),
    noise=st.binary(min_size=200, max_size=200),
)
def test_random_noise_anywhere_in_the_last_commit_is_a_torn_tail(
    at: int, length: int, noise: bytes
) -> None:
    data = bytearray(LAST.data)
    stop = min(at + max(length, 16), len(data))
    data[at:stop] = noise[: stop - at]
    whole = FIRST.data + MIDDLE.data
    if bytes(data) != LAST.data:
        assert torn(whole + bytes(data))


@given(
    at=st.integers(0, len(MIDDLE.data) - 1),
    length=st.integers(1, 200),
    noise=st.binary(min_size=0, max_size=200),
)
def test_random_noise_anywhere_before_the_last_commit_is_corruption(
    at: int, length: int, noise: bytes
) -> None:
    data = bytearray(MIDDLE.data)
    data[at : at + length] = noise
    if bytes(data) != MIDDLE.data:
        assert not torn(FIRST.data + bytes(data) + LAST.data)
