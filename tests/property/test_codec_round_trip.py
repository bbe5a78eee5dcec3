"""Any text and any JSON value comes back from the journal as it went in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.codec import EMPTY_TIP, Scan, decode_line, encode_commit
from perdure.core.events import Draft, Event

ANY_CHARACTER = st.characters() | st.characters(categories=["Cs"])
TEXT = st.text(ANY_CHARACTER | st.sampled_from('\u2028\u2029\x85\0\n\r\t"\\/\x7f\ufeff\U0001f600'))
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
SPECIAL = {
    "line separator": "a\u2028b",
    "lone high surrogate": "a\ud83db",
    "lone low surrogate": "\udc80",
    "surrogates the wrong way round": "\ude00\ud83d",
    "nul": "\0",
    "astral": "\U0001f600\U0010ffff",
    "64 KB of ASCII": "x" * 65_536,
    "64 KB of newlines": "\n" * 65_536,
    "64 KB of lone surrogates": "\ud800\ue000" * 8_192,
    "a line of a journal": '{"seq":1,"ts":"t","actor":"a","kind":"NOTE","h":"0123456789abcdef"}',
    "an end of a line": '","h":"0123456789abcdef"}\n{"seq":2',
}


def joined(text: str) -> str:
    """What JSON makes of it: two surrogates that fit are the one character they stand for."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def normal(value: Any) -> Any:
    if isinstance(value, str):
        return joined(value)
    if isinstance(value, list):
        return [normal(entry) for entry in value]
    if isinstance(value, dict):
        return {joined(key): normal(entry) for key, entry in value.items()}
    return value


def there_and_back(payload: dict[str, Any], **more: Any) -> Event:
    commit = encode_commit(
        EMPTY_TIP,
        [Draft("NOTE", "task", "T1", payload, ("J-1", "ref"))],
        **{"ts": "now", "actor": "a:b", "epoch": 1, **more},
    )
    assert commit.data.count(b"\n") == 1
    scan = Scan()
    ((event,),) = list(scan.commits([commit.data]))
    assert scan.damage is None
    assert scan.tip == commit.tip
    assert event == commit.events[0] == decode_line(commit.data[:-1])
    return event


@pytest.mark.parametrize("text", SPECIAL.values(), ids=SPECIAL)
def test_special_texts_come_back(text: str) -> None:
    event = there_and_back({"text": text, text: 1}, actor=f"a:{text}", op=text)
    assert event.payload == {"text": text, text: 1}
    assert (event.actor, event.op) == (f"a:{text}", text)


@given(TEXT)
def test_any_text_comes_back(text: str) -> None:
    assert there_and_back({"text": text}).payload["text"] == joined(text)


@given(st.dictionaries(TEXT, VALUE, max_size=5))
def test_any_json_value_comes_back(payload: dict[str, Any]) -> None:
    assert there_and_back(payload).payload == normal(payload)


@given(st.lists(st.dictionaries(TEXT, TEXT, max_size=3), min_size=1, max_size=8), st.data())
def test_any_commit_comes_back_in_any_chunks(
    payloads: list[dict[str, str]], data: st.DataObject
) -> None:
    drafts = [Draft("NOTE", "task", "T1", dict(payload)) for payload in payloads]
    commit = encode_commit(EMPTY_TIP, drafts, ts="now", actor="a:b", epoch=1)
    at = data.draw(st.integers(0, len(commit.data)))
    scan = Scan()
    events = [e for found in scan.commits([commit.data[:at], commit.data[at:]]) for e in found]
    assert tuple(events) == commit.events
    assert (scan.tip, scan.damage) == (commit.tip, None)


@given(st.binary(max_size=300))
def test_any_bytes_are_events_or_damage_and_never_an_error(data: bytes) -> None:
    scan = Scan()
    events = [event for found in scan.commits([data]) for event in found]
    assert scan.damage is not None or not data.strip() or events
