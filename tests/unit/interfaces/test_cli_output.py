"""What the command line prints: harmless, legible, and one envelope for programs."""

import contextlib
import io
import json
import os

import pytest

from perdure.errors import EvidenceError, HaltError, LeaseHeldError
from perdure.interfaces.cli import program
from perdure.interfaces.cli.output import (
    acknowledgement,
    asked,
    error_lines,
    field,
    fields,
    plain,
    record,
    report_error,
    respond,
    some,
    table,
    write_json,
)
from perdure.interfaces.cli.progress import Lines, Show, event_lines
from perdure.interfaces.cli.request import Request


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\x1b[2Jcleared", "\\x1b[2Jcleared"),
        ("\x9b31mred", "\\x9b31mred"),
        ("abc\x00def\x7f", "abc\\x00def\\x7f"),
        ("right-to-left \u202eevil", "right-to-left \\u202eevil"),
        ("Jörg, 表, 🙂", "Jörg, 表, 🙂"),
        (7, "7"),
    ],
)
def test_text_of_others_cannot_move_the_cursor(text: object, shown: str) -> None:
    assert plain(text) == shown


def test_long_text_is_cut_with_dots() -> None:
    assert plain("x" * 300, 20) == "x" * 17 + "..."
    assert plain("x" * 300, None) == "x" * 300


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"committed": "J-4"}, "committed J-4"),
        (
            {"committed": "J-4", "repeated": True},
            "committed J-4 (already, nothing was written now)",
        ),
        ({"committed": None, "repeated": True}, "nothing new to commit"),
        (
            {"committed": None, "queued": True, "id": "op-1"},
            "queued op-1 (the coordinator takes it in within a second)",
        ),
    ],
)
def test_only_what_is_committed_is_called_committed(data: dict[str, object], line: str) -> None:
    assert acknowledgement(data) == [line]


def test_error_says_code_rule_message_suggestion_and_fix() -> None:
    error = EvidenceError("no\nfile", fix="Write it.", suggestions=["a", "b"])
    assert error_lines(error) == [
        "perdure: evidence_missing (PD-J1): no",
        "  file",
        "  did you mean a, b?",
        "  fix: Write it.",
    ]


def test_error_for_programs_is_one_object_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report_error(LeaseHeldError("held", fix="Wait."), as_json=True) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err) == {
        "schema_version": 1,
        "error": {
            "code": "lease_held",
            "rule": "lease",
            "message": "held",
            "fix": "Wait.",
            "suggestions": [],
        },
    }


def test_answer_for_programs_is_the_envelope_and_no_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = Request("/", {})
    request.json = True
    respond(request, {"a": 1}, ["text"])
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "data": {"a": 1}}


def test_undecodable_file_names_do_not_break_the_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json({"path": os.fsdecode(b"caf\xe9")})
    assert capsys.readouterr().out == '{"path":"caf\\udce9"}\n'


def test_fields_are_aligned_and_empty_ones_left_out() -> None:
    assert field("goal", "") == field("goal", None) == fields("goal", []) == []
    assert field("goal", "g") == ["  goal       g"]
    assert fields("at work", ["N1", "N2"]) == ["  at work    N1", "             N2"]
    assert field("attempt", 0) == ["  attempt    0"]


def test_lists_say_how_many_more_there_are() -> None:
    assert some([]) == ""
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert some(["a", "b"], 2, total=10) == "a, b and 8 more"


def test_many_questions_are_counted_and_the_first_few_shown() -> None:
    many = {f"Q-{n}": "why?" for n in range(500)}
    assert asked({"Q-1": "why?"}) == ["Q-1: why?"]
    assert asked(many)[-2:] == ["Q-7: why?", "and 492 more: perdure inbox"]


def test_columns_are_as_wide_as_they_must_be() -> None:
    assert table([]) == []
    assert table([("N1", "x"), ("N10", "y")]) == ["N1   x", "N10  y"]


def test_record_shows_every_field_that_says_something() -> None:
    data = {
        "id": "N1",
        "empty": "",
        "nothing": None,
        "zero": 0,
        "draft": False,
        "names": ["a", "b"],
        "spec": {"outputs": ["x" * 80, "y" * 80]},
        "checks": [{"check": "exists", "params": {"path": "p"}}, {"check": "script"}],
        "text": "one\ntwo",
    }
    assert record(data) == [
        "id: N1",
        "zero: 0",
        "draft: no",
        "names: a, b",
        "spec:",
        "  outputs:",
        f"    - {'x' * 80}",
        f"    - {'y' * 80}",
        "checks:",
        "  - check: exists",
        "    params:",
        "      path: p",
        "  - check: script",
        "text:",
        "  one",
        "  two",
    ]


EVENTS = [
    (
        {"event": "opened", "task_id": "T", "stable_position": "J-9", "found": ["a torn tail"],
         "repaired": ["cut"], "suspects": ["N1"]},
        ["task T at J-9", "found a torn tail", "repaired cut",
         "files are not what was registered: N1"],
    ),
    ({"event": "graph", "added": ["a", "b"], "amended": [], "dropped": ["c"]},
     ["graph 2 added, 1 kept that the file does not have"]),
    ({"event": "graph", "added": [], "amended": ["a"], "dropped": [], "ignored": ["goal", "tier"]},
     ["graph 1 amended", "not taken over, it was set at the start: goal, tier"]),
    ({"event": "graph", "added": [], "amended": [], "dropped": [], "ignored": ["policies"]},
     ["not taken over, it was set at the start: policies"]),
    ({"event": "graph", "added": [], "amended": [], "kept": ["a (run)", "b (title)"]},
     ["kept as people changed it, the file says otherwise: a (run), b (title)"]),
    ({"event": "started", "node": "N1", "attempt": 2}, ["started N1 (attempt 2)"]),
    ({"event": "done", "node": "N1", "done": 3, "total": 10}, ["done N1  3/10"]),
    ({"event": "failed", "node": "N1", "why": "exit 3", "state": "RETRYABLE"},
     ["failed N1: exit 3 (RETRYABLE)"]),
    ({"event": "interrupted", "node": "N1", "state": "RETRYABLE"}, ["interrupted N1 RETRYABLE"]),
    ({"event": "leftovers", "node": "N1", "processes": [[7, "sleep"]]},
     ["stopped what N1 left running: sleep (7)"]),
    ({"event": "orphans_stopped", "processes": [[7, "sleep", "N1"]], "left": [[8, "dd", "N2"]]},
     ["stopped what a former run had left running: sleep (7, of N1)",
      "could not stop dd (8, of N2); its node waits"]),
    ({"event": "probe_failed", "node": "N1", "why": "no space"},
     ["waiting to retry N1: no space"]),
    ({"event": "stopping", "signal": 2, "at_once": False},
     ["stopping at the next commit boundary (signal 2)"]),
    ({"event": "finished", "outcome": "finished", "counts": {}}, []),
    ({"event": "something new", "node": "N1"}, ["something new N1"]),
]  # fmt: skip


@pytest.mark.parametrize(("event", "lines"), EVENTS, ids=[str(e["event"]) for e, _ in EVENTS])
def test_events_of_a_run_as_lines(event: dict[str, object], lines: list[str]) -> None:
    assert event_lines(event) == lines


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("show", [Show, Lines])
def test_reader_that_goes_away_does_not_stop_a_run(show: type[Show]) -> None:
    shown = show()
    with contextlib.redirect_stdout(ClosedPipe()):
        shown.event({"event": "done", "node": "N1", "done": 1, "total": 2})
        shown.event({"event": "done", "node": "N2", "done": 2, "total": 2})
    assert shown.broken


def calling(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call end with this error."""

    class Broken:
        def main(self, *arguments: object, **options: object) -> int:
            raise error

    monkeypatch.setattr(program, "build_program", Broken)


def test_fault_of_ours_exits_70_and_says_so_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PERDURE_DEBUG", raising=False)
    calling(ValueError("what?"), monkeypatch)
    assert program.main(["status"]) == 70
    err = capsys.readouterr().err
    assert "fault of perdure" in err
    assert "ValueError: what?" in err
    assert "PERDURE_DEBUG=1" in err
    assert "Traceback" not in err
    assert program.main(["status", "--json"]) == 70
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "fault"


def test_fault_shows_its_traceback_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    calling(ValueError("what?"), monkeypatch)
    with pytest.raises(ValueError, match="what"):
        program.main(["status"])


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, ""),
        (HaltError("no"), 4, "perdure: refused (IN-3): no"),
        (OSError(28, "No space left on device"), 7, "disk_full"),
    ],
)
def test_every_end_has_its_exit_code(
    error: BaseException,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calling(error, monkeypatch)
    assert program.main(["status"]) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "given", "actor"),
    [
        ({}, None, "coordinator:cli"),
        ({"USER": "anna"}, None, "coordinator:anna"),
        ({"USER": "DOMAIN\\anna"}, None, "coordinator:cli"),
        ({"LOGNAME": "bob"}, None, "coordinator:bob"),
        ({"USER": "anna", "PERDURE_ACTOR": "executor:w1"}, None, "executor:w1"),
        ({"PERDURE_ACTOR": "executor:w1"}, "sponsor:eve", "sponsor:eve"),
    ],
)
def test_actor_is_who_was_named_else_the_user(
    environ: dict[str, str], given: str | None, actor: str
) -> None:
    request = Request("/", environ)
    request.actor_given = given
    assert request.actor == actor


@pytest.mark.parametrize(
    ("environ", "given", "actor"),
    [
        ({}, None, "sponsor:cli"),
        ({"USER": "anna"}, None, "sponsor:anna"),
        ({"USER": "anna", "PERDURE_ACTOR": "executor:w1"}, None, "executor:w1"),
        ({"USER": "anna"}, "coordinator:bob", "coordinator:bob"),
    ],
)
def test_a_command_gives_its_role_to_who_says_nothing_and_to_nobody_else(
    environ: dict[str, str], given: str | None, actor: str
) -> None:
    request = Request("/", environ)
    request.actor_given = given
    assert request.actor_as("sponsor") == actor


@pytest.mark.parametrize(
    ("directory", "actor"),
    [(None, "executor:inv-1"), ("w", "executor:inv-1"), ("/else/w", "coordinator:anna")],
)
def test_what_a_run_calls_its_command_counts_in_its_own_workspace(
    directory: str | None, actor: str
) -> None:
    given = {"PERDURE_ACTOR": "executor:inv-1", "PERDURE_INVOCATION": "inv-1"}
    request = Request("/here", {"USER": "anna", "PERDURE_WORKSPACE": "/here/w", **given})
    request.directory = directory
    assert request.actor == actor
