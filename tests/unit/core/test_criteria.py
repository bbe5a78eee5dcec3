"""Acceptance criteria as text and as records: what is read, refused, and read back again."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.check_values import clean_path, count_max, timeout_s_max
from perdure.core.criteria import criterion_bytes_max, parse_criterion, render_criterion
from perdure.core.lookup import near
from perdure.core.model import CHECK_METHODS, Criterion
from perdure.errors import UsageError

DIGEST = "ab" * 32

READINGS: list[tuple[object, str, dict[str, Any]]] = [
    ("exists: out/a.txt", "exists", {"path": "out/a.txt"}),
    ("  exists :  ./out//a.txt ", "exists", {"path": "out/a.txt"}),
    ("exists: a.txt b.txt", "exists", {"paths": ["a.txt", "b.txt"]}),
    ('nonempty: "my file.txt"', "nonempty", {"path": "my file.txt"}),
    ({"exists": ["a", "b c"]}, "exists", {"paths": ["a", "b c"]}),
    ({"exists": {"paths": ["a"]}}, "exists", {"path": "a"}),
    (f"sha256: a.bin {DIGEST.upper()}", "sha256", {"path": "a.bin", "value": DIGEST}),
    (
        {"sha256": {"path": "a", "value": f"sha256:{DIGEST}"}},
        "sha256",
        {"path": "a", "value": DIGEST},
    ),
    ("json-schema: a.json s.json", "json-schema", {"path": "a.json", "schema": "s.json"}),
    (
        {"json-schema": {"path": "a.json", "schema": {"type": "object"}}},
        "json-schema",
        {"path": "a.json", "schema": {"type": "object"}},
    ),
    ("matches: a.md ^# Title: .*$", "matches", {"path": "a.md", "pattern": "^# Title: .*$"}),
    ("count: out/*.csv >= 3", "count", {"glob": "out/*.csv", "min": 3}),
    ("count: out/*.csv > 3", "count", {"glob": "out/*.csv", "min": 4}),
    ("count: out/*.csv >=1 <10", "count", {"glob": "out/*.csv", "min": 1, "max": 9}),
    ("count: lines a.txt == 12", "count", {"lines": "a.txt", "equals": 12}),
    ('count: lines "a b.txt" = 0', "count", {"lines": "a b.txt", "equals": 0}),
    ("count: lines >= 1", "count", {"glob": "lines", "min": 1}),
    ({"count": {"glob": "**/*.png", "max": 2}}, "count", {"glob": "**/*.png", "max": 2}),
    ("script: test -f a: b", "script", {"run": "test -f a: b"}),
    ({"script": ["python", "check.py"]}, "script", {"run": ["python", "check.py"]}),
    ({"script": {"run": "x", "timeout": 5}}, "script", {"run": "x", "timeout_s": 5.0}),
    ({"script": {"run": "x", "timeout": "1.5m"}}, "script", {"run": "x", "timeout_s": 90.0}),
    ("units: artifacts/N1/ledger.jsonl", "units", {"ledger": "artifacts/N1/ledger.jsonl"}),
    ("units", "units", {}),
    ({"units": None}, "units", {}),
    ({"units": {"ledger": "l.jsonl", "total": 7}}, "units", {"ledger": "l.jsonl", "total": 7}),
    ({"check": "exists", "params": {"path": "a"}}, "exists", {"path": "a"}),
    ({"check": "exists", "path": "a"}, "exists", {"path": "a"}),
    ({"check": "exists: a b"}, "exists", {"paths": ["a", "b"]}),
    ('{"exists": {"path": "a\\"b"}}', "exists", {"path": 'a"b'}),
    ("audit: Is it well argued?", "audit", {"rubric": "Is it well argued?"}),
    ("human: Good?", "human", {"rubric": "Good?"}),
    ("human", "human", {}),
    (
        {"human": {"rubric": " Good? ", "judge": "ada", "rounds": 2, "default": "remain-blocked"}},
        "human",
        {"rubric": "Good?", "judge": ["ada"], "rounds": 2, "default": "remain-blocked"},
    ),
    (
        {"human": {"judge": ["ada", "bob", "ada"], "default": "reject", "timeout": "30d"}},
        "human",
        {"judge": ["ada", "bob"], "default": "reject", "timeout_s": 2_592_000.0},
    ),
]


@pytest.mark.parametrize(("entry", "check", "params"), READINGS)
def test_every_form_gives_the_same_canonical_record(
    entry: object, check: str, params: dict[str, Any]
) -> None:
    criterion = parse_criterion(entry)
    assert (criterion.check, criterion.params) == (check, params)


@pytest.mark.parametrize(("entry", "check", "params"), READINGS)
def test_a_record_survives_its_text_and_its_json(
    entry: object, check: str, params: dict[str, Any]
) -> None:
    criterion = parse_criterion(entry)
    assert parse_criterion(criterion) == criterion
    assert parse_criterion(render_criterion(criterion)) == criterion
    assert parse_criterion(msgspec.to_builtins(criterion)) == criterion
    assert msgspec.json.decode(msgspec.json.encode(criterion), type=Criterion) == criterion


def test_there_is_a_reading_of_every_method() -> None:
    assert {check for _, check, _ in READINGS} == set(CHECK_METHODS)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"exists": {"path": "a b"}}, 'exists: "a b"'),
        ({"count": {"glob": "*.csv", "max": 4, "min": 1}}, "count: *.csv >= 1 <= 4"),
        ({"count": {"lines": "a", "equals": 3}}, "count: lines a == 3"),
        ({"matches": {"path": "a", "pattern": "x y"}}, "matches: a x y"),
        ({"matches": {"path": "a", "pattern": " x"}}, '{"matches":{"path":"a","pattern":" x"}}'),
        ({"exists": {"path": 'a"b'}}, '{"exists":{"path":"a\\"b"}}'),
        ({"script": "make check"}, "script: make check"),
        ({"script": {"run": "make", "timeout": 2}}, '{"script":{"run":"make","timeout_s":2.0}}'),
        ({"units": {}}, "units:"),
        ({"audit": "Sound?"}, "audit: Sound?"),
        (
            {"audit": {"rubric": ["a", "b"], "agent": "claude", "timeout": "30m"}},
            '{"audit":{"agent":{"agent":"claude"},"rubric":["a","b"],"timeout_s":1800.0}}',
        ),
        (
            {"exists": "a", "level": "V2"},
            '{"check":"exists","level":"V2","params":{"path":"a"}}',
        ),
    ],
)
def test_text_is_plain_where_it_can_hold_everything_and_json_elsewhere(
    entry: object, text: str
) -> None:
    assert render_criterion(parse_criterion(entry)) == text


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1)
PATHS = st.lists(NAMES.filter(lambda n: n not in (".", "..")), min_size=1, max_size=3).map("/".join)
NUMBERS = st.integers(0, count_max)
RECORDS = st.one_of(
    st.builds(lambda p: {"exists": p}, st.lists(PATHS, min_size=1, max_size=3)),
    st.builds(lambda p: {"sha256": {"path": p, "value": DIGEST}}, PATHS),
    st.builds(lambda p, s: {"json-schema": {"path": p, "schema": s}}, PATHS, PATHS),
    st.builds(
        lambda p, t: {"matches": {"path": p, "pattern": t}},
        PATHS,
        st.text("ab .^$\n\t\"':{}", min_size=1).map(lambda t: t.replace("{", "[{]")),
    ),
    st.builds(
        lambda p, n: {"count": {"glob": p, "min": n}},
        PATHS.filter(lambda p: "**" not in p),
        NUMBERS,
    ),
    st.builds(lambda p, n: {"count": {"lines": p, "equals": n}}, PATHS, NUMBERS),
    st.builds(
        lambda t: {"script": {"run": t}}, st.text("ab :{}\"'\n", min_size=1).filter(str.strip)
    ),
    st.builds(lambda p, n: {"units": {"ledger": p, "total": n}}, PATHS, NUMBERS),
    st.builds(lambda t: {"audit": {"rubric": t}}, st.text("ab :{}\n")),
)


@given(RECORDS, st.sampled_from(["V0", "V1", "V2", "V3", None]))
def test_rendering_and_reading_is_the_identity(entry: dict[str, Any], level: str | None) -> None:
    if level is not None and not ("audit" in entry and level < "V2"):
        entry = entry | {"level": level}
    criterion = parse_criterion(entry)
    assert parse_criterion(render_criterion(criterion)) == criterion


@given(st.text(), st.sampled_from(["", *(f"{method}: " for method in CHECK_METHODS)]))
def test_any_text_is_either_read_or_refused(text: str, method: str) -> None:
    try:
        criterion = parse_criterion(method + text)
    except UsageError:
        return
    assert parse_criterion(render_criterion(criterion)) == criterion


REFUSALS: list[tuple[object, str]] = [
    (None, "text or a mapping, not NoneType"),
    (["exists: a"], "not list"),
    ("", "names no check method"),
    ("exists a.txt", "lacks the colon"),
    ("exits: a.txt", "no check method 'exits'"),
    ("exists:", "no path is given"),
    ("exists: /etc/passwd", "is absolute"),
    ("exists: c:/a", "is absolute"),
    ("exists: a/../../b", "climbs out"),
    ("exists: a\\b", "backslash"),
    ("exists: .", "names no file"),
    ({"exists": "a\0b"}, "NUL"),
    ({"exists": {"path": "a\ud800"}}, "not valid UTF-8"),
    ({"exists": {"path": "a" * 5_000}}, "longer than 4096"),
    ({"exists": {"path": 7}}, "path must be text"),
    ({"exists": []}, "no path is given"),
    ({"exists": {"path": "a", "paths": ["b"]}}, "exclude each other"),
    ({"exists": 7}, "text or a mapping, not int"),
    ({"exists": {"pth": "a"}}, "no parameter 'pth'"),
    ({"exists": {1: "a"}}, "is not text"),
    ({"exists": "a", "nonempty": "b"}, "has one key"),
    ({}, "has one key"),
    ({1: "a"}, "keys of a criterion"),
    ({"check": 1}, "name of a method"),
    ({"check": "exists", "params": {"path": "a"}, "levle": "V2"}, "does not know levle"),
    ({"check": "exists: a", "path": "b"}, "parameters twice"),
    ({"exists": "a", "level": "V9"}, "no verification level"),
    ({"audit": "x", "level": "V1"}, "cannot be of level V1"),
    ({"human": "x", "level": "V2"}, "cannot be of level V2"),
    ("sha256: a", "needs two arguments"),
    ("sha256: a abc", "not a sha256 value"),
    ({"sha256": {"path": "a", "value": 1234}}, "not a sha256 value"),
    ({"sha256": {"path": "a"}}, "needs value"),
    ({"json-schema": {"path": "a"}}, "needs schema"),
    ({"json-schema": {"path": "a", "schema": ["x"]}}, "schema must be text"),
    ("matches: a.txt", "needs a path and a pattern"),
    ("matches: a.txt (", "not a regular expression"),
    ("matches: a.txt [z-a]", "not a regular expression"),
    ({"matches": {"path": "a", "pattern": ""}}, "not empty"),
    ("count: *.csv", "does not end in a comparison"),
    ("count: *.csv >= many", "does not end in a comparison"),
    ("count: a b >= 1", "names 2 things"),
    ("count: a >= 1 >= 2", "two values for min"),
    ("count: a >= 3 <= 2", "no number is at least 3"),
    ("count: a == 3 <= 2", "needs equals, or min"),
    ("count: a < 0", "whole number from 0"),
    ("count: a**b >= 1", "does not stand alone"),
    ("count: ../*.csv >= 1", "climbs out"),
    ({"count": {"glob": "a"}}, "needs equals, or min"),
    ({"count": {"glob": "a", "lines": "b", "min": 1}}, "either glob or lines"),
    ({"count": {"glob": "a", "min": True}}, "whole number"),
    ({"count": {"glob": "a", "min": 1.5}}, "whole number"),
    ("script:", "run must be"),
    ({"script": []}, "run must be"),
    ({"script": ["a", 1]}, "run must be"),
    ({"script": "a\0"}, "NUL"),
    ({"script": {"run": "a", "timeout": 0}}, "timeout must be"),
    ({"script": {"run": "a", "timeout": "soon"}}, "timeout must be"),
    ({"script": {"run": "a", "timeout": 10**400}}, "timeout must be"),
    ({"script": {"run": "a", "timeout": timeout_s_max + 1}}, "timeout must be"),
    ({"script": {"run": "a", "timeout": 1, "timeout_s": 1}}, "exclude each other"),
    ("units: a b", "one ledger"),
    ({"units": {"total": -1}}, "whole number"),
    ('{"exists"', "must be JSON"),
    ({"human": {"rubric": 7}}, "rubric must be a text"),
    ({"human": {"rubric": " "}}, "rubric must be a text"),
    ({"human": {"judge": []}}, "judge must be the name"),
    ({"human": {"judge": ["ada", " "]}}, "judge must be the name"),
    ({"human": {"rounds": -1}}, "rounds must be a whole number"),
    ({"human": {"default": "approve", "timeout": 60}}, "default of human cannot be 'approve'"),
    ({"human": {"default": "reject"}}, "nobody says when"),
    ({"human": {"timeout": 0}}, "timeout must be a time"),
    ({"human": {"timeout": 60, "timeout_s": 60}}, "exclude each other"),
    ({"human": {"jugde": "ada"}}, "no parameter 'jugde'"),
    ({"json-schema": {"path": "a", "schema": {"x": object()}}}, "cannot be written as JSON"),
    ({"audit": {"rubric": object()}}, "rubric must be a text, or a list of texts"),
    ({"audit": {"rubric": ["a", "a "]}}, "two points of the rubric are the same"),
    ({"audit": {"rubric": "a", "agent": "claude", "run": "judge"}}, "exclude each other"),
    ({"audit": {"agent": "cladue"}}, "is no agent that can audit"),
    ({"audit": {"agent": {"agent": "command"}}}, "argument vector of the agent"),
    ({"audit": {"agent": {"agent": "claude", "args": 1}}}, "the auditor cannot be read"),
    ({"audit": {"run": []}}, "starts with a program"),
    ({"audit": {"independence": ["I6"]}}, "'I6' is no kind of independence"),
    ({"audit": {"model": ""}}, "model must be the name of a model"),
    ({"audit": {"timeout": "soon"}}, "timeout must be a time"),
    ({"audit": {"rubrik": "a"}}, "no parameter 'rubrik'"),
    ({"audit": {"rubric": [f"point {n}" for n in range(101)]}}, "at most 100 points"),
    ({"audit": "x" * criterion_bytes_max}, f"over {criterion_bytes_max}"),
]


@pytest.mark.parametrize(("entry", "said"), REFUSALS)
def test_a_malformed_criterion_is_refused_with_a_cure(entry: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_criterion(entry)
    assert said in caught.value.message
    assert caught.value.fix
    assert caught.value.code == "criterion_invalid"


def test_a_path_that_climbs_out_cites_the_rule() -> None:
    with pytest.raises(UsageError) as caught:
        parse_criterion("nonempty: ../a")
    assert caught.value.rule == "PL-4"


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ("exits: a", "exists"),
        ("json_schema: a b", "json-schema"),
        ("Exists: a", "exists"),
        ("sha: a b", "sha256"),
        ("match: a b", "matches"),
        ({"exists": {"pth": "a"}}, "path"),
        ({"script": {"run": "x", "timout": 3}}, "timeout"),
        ({"check": "exists", "params": {"path": "a"}, "levle": "V2"}, "level"),
    ],
)
def test_a_near_miss_is_suggested(entry: object, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_criterion(entry)
    assert caught.value.suggestions[0] == meant
    assert "Did you mean" in str(caught.value)


def test_the_missing_colon_is_put_in() -> None:
    with pytest.raises(UsageError) as caught:
        parse_criterion("exists a.txt")
    assert '"exists: a.txt"' in caught.value.fix


def test_the_level_of_the_node_is_raised_for_judgement_and_yields_to_an_explicit_one() -> None:
    assert parse_criterion("exists: a", level="V0").level == "V0"
    assert parse_criterion({"exists": "a", "level": "V2"}, level="V0").level == "V2"
    assert parse_criterion("audit: ok?").level == "V2"
    assert parse_criterion("audit: ok?", level="V3").level == "V3"
    assert parse_criterion("human: ok?").level == "V3"


def test_values_are_as_they_come_back_from_the_journal() -> None:
    # YAML makes dates of some texts; the journal holds text.
    schema = {"const": dt.date(2026, 11, 30), "enum": (1, 2)}
    criterion = parse_criterion({"json-schema": {"path": "a.json", "schema": schema}})
    assert criterion.params["schema"] == {"const": "2026-11-30", "enum": [1, 2]}


def test_the_record_does_not_share_the_mapping_it_was_read_from() -> None:
    schema: dict[str, Any] = {"type": "object"}
    criterion = parse_criterion({"json-schema": {"path": "a.json", "schema": schema}})
    schema["type"] = "array"
    assert criterion.params["schema"] == {"type": "object"}


@given(st.text())
def test_a_clean_path_stays_clean_and_below_the_workspace(text: str) -> None:
    try:
        path = clean_path(text)
    except UsageError:
        return
    assert clean_path(path) == path
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(path.split("/"))


def test_near_finds_swaps_prefixes_and_nothing_far() -> None:
    assert near("satrt", ["start", "status", "submit"])[0] == "start"
    assert near("stat", ["start", "status", "submit"])[:2] == ["start", "status"]
    assert near("zebra", ["start", "status"]) == []
    assert near("", ["start"]) == []
    assert near("N-41", ["N-42", "N-43", "N-44", "N-45"]) == ["N-42", "N-43", "N-44"]
