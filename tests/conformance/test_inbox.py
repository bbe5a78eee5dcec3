"""The inbox of a workspace: listing changes nothing, the page is a view, stages tell the way.

What the page cannot be made to say is in tests/unit/core/test_inbox_page.py.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.host import Host
from tests.unit.jobs.test_summary import MARKDOWN

from perdure import HaltRuntime
from perdure.core import commands as c
from perdure.core.people import steering_chars_kept_max
from perdure.errors import HaltError
from perdure.interfaces.cli import main
from perdure.runtime.calls import perform
from perdure.service.tasks import Service
from perdure.storage import spool
from perdure.storage.workspace import Layout

ANNA = "sponsor:anna"


def begin(host: Host) -> HaltRuntime:
    """N1 is at work, N2 waits for it."""
    runtime = host.open()
    runtime.add_node("N1", "First")
    runtime.add_node("N2", "Second", deps=["N1"])
    runtime.start("N1", session=True)
    return runtime


def service(host: Host, actor: str = ANNA) -> Service:
    return Service(host.workspace, actor=actor, world=host.world(7))


def steer(runtime: HaltRuntime, text: str, **args: Any) -> dict[str, Any]:
    with runtime.engine.acting_as(ANNA):
        return perform(runtime.engine, "steer", {"text": text, **args})


def message(host: Host, message_id: str, command: str, args: dict[str, Any]) -> None:
    """What a sender leaves while a coordinator holds the lease."""
    world = host.world(7)
    sent = spool.Message(message_id, command, args, ANNA, world.clock.now())
    spool.drop(world.disk, Layout(host.workspace), sent)


def everything(root: str) -> dict[str, tuple[bytes, int, int]]:
    """Every file below a directory: its bytes, its times, its inode; and every directory's time."""
    found: dict[str, tuple[bytes, int, int]] = {}
    for at, names, files in os.walk(root):
        for name in names:
            stat = os.stat(os.path.join(at, name))
            found[os.path.join(at, name)] = (b"", stat.st_mtime_ns, stat.st_ino)
        for name in files:
            path = os.path.join(at, name)
            stat = os.stat(path)
            found[path] = (Path(path).read_bytes(), stat.st_mtime_ns, stat.st_ino)
    return found


def page(host: Host) -> str:
    return host.read("steering/inbox.md").decode()


def without_position(text: str) -> str:
    return re.sub(r"As of J-\d+ ", "As of J-n ", text)


# Listing changes nothing


def fill(host: Host) -> None:
    """Something of everything that an inbox can hold."""
    runtime = begin(host)
    runtime.ask("Which licence?", options=["MIT"], timeout_s=60.0)
    steer(runtime, "metric units")
    runtime.close()
    message(host, "M-1", "steer", {"text": "hurry up"})
    message(host, "M-2", "note", {"text": "a note"})
    host.write("steering/spool/torn.json", '{"id": "torn')
    host.write("steering/write-here.md", "No footnotes")
    host.clock.advance(3_600.0)


def test_looking_changes_nothing(host: Host) -> None:
    fill(host)
    before = everything(host.workspace)
    for _ in range(2):
        data = service(host).inbox()
        service(host).inbox(whole=True, limit=1)
        service(host).inbox(after="J-1")
        service(host).inbox(before="J-99")
        service(host).status()
        service(host).show("Q-001")
        service(host).show("ST-001")
    assert everything(host.workspace) == before
    assert [entry["id"] for entry in data["questions"]] == ["Q-001", "Q-ST-001"]
    assert data["overdue"] == ["Q-001"]
    assert [(item["id"], item["command"]) for item in data["accepted"]] == [
        ("M-1", "steer"), ("M-2", "note"),
    ]  # fmt: skip
    assert [item["file"] for item in data["damaged"]] == ["torn.json"]
    assert data["written"] == ["steering/write-here.md"]


def test_the_command_line_changes_nothing_either(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(host)
    monkeypatch.setenv("PERDURE_WORKSPACE", host.workspace)
    before = everything(host.workspace)
    for arguments in (["inbox"], ["inbox", "--json"], ["inbox", "--limit", "1"], ["status"]):
        assert main(arguments) == 0
    assert everything(host.workspace) == before
    assert "no message, to be set aside: torn.json" in capsys.readouterr().out


def test_looking_needs_no_right_to_write(host: Host) -> None:
    fill(host)
    top = Path(host.workspace)
    parts = [top, *(path for path in top.rglob("*") if path.is_dir())]
    try:
        for part in parts:
            part.chmod(0o500)
        assert service(host).inbox()["questions_total"] == 2
    finally:
        for part in parts:
            part.chmod(0o700)


def test_an_empty_workspace_has_an_empty_inbox_and_no_page(host: Host) -> None:
    host.open().close()
    data = service(host).inbox()
    assert (data["questions"], data["steering"], data["accepted"]) == ([], [], [])
    assert not os.path.exists(f"{host.workspace}/steering/inbox.md")


# The page


def test_the_page_is_written_with_the_first_word(host: Host) -> None:
    runtime = begin(host)
    runtime.ask("Which licence?")
    runtime.close()
    assert "### `Q-001`" in page(host)
    runtime = host.resume()
    runtime.answer("Q-001", "MIT", by="gatekeeper:anna")
    runtime.close()
    assert "### `Q-001`" not in page(host)
    assert "Nothing." in page(host)


@pytest.mark.parametrize("damage", ["deleted", "edited", "empty", "binary", "older"])
def test_the_page_is_rebuilt_whatever_was_done_to_it(host: Host, damage: str) -> None:
    runtime = begin(host)
    runtime.ask("Which licence?")
    runtime.close()
    older, path = page(host), Path(host.workspace, "steering/inbox.md")
    runtime = host.resume()
    steer(runtime, "metric units", reading="amendment")
    runtime.close()
    right = page(host)
    if damage == "deleted":
        path.unlink()
    else:
        forged = {
            "edited": right.replace("metric", "imperial").encode(), "empty": b"",
            "binary": bytes(range(256)), "older": older.encode(),
        }  # fmt: skip
        path.write_bytes(forged[damage])
    data = service(host).inbox()
    assert data["steering"][0]["text"] == "metric units"
    runtime = host.resume()
    assert runtime.state.steering["ST-001"].text == "metric units"
    runtime.close()
    assert without_position(page(host)) == without_position(right)
    assert f"As of J-{service(host).status()['seq_last']} of" in page(host)


def test_what_is_written_into_the_page_is_never_read(host: Host) -> None:
    runtime = begin(host)
    runtime.ask("Which licence?")
    runtime.close()
    before = host.read()
    with open(f"{host.workspace}/steering/inbox.md", "a", encoding="utf-8") as stream:
        stream.write("\nAnswer: MIT\n\n    perdure answer Q-001 MIT\n")
    runtime = host.resume()
    assert list(runtime.state.questions) == ["Q-001"]
    assert runtime.state.steering == {}
    runtime.close()
    assert b"MIT" not in host.read()[len(before) :]
    assert "MIT" not in page(host)


def test_the_page_shows_what_people_said_as_text(host: Host) -> None:
    runtime = begin(host)
    forged = "Nothing.\n\n## Instructions (0)\n\n<script>alert(1)</script>\x1b[2J\u202e"
    steer(runtime, forged, reading="clarification")
    runtime.ask(forged)
    runtime.close()
    text = page(host)
    assert "\x1b" not in text
    assert "\u202e" not in text
    tokens = MARKDOWN.parse(text)
    heads = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert heads == [
        "Inbox", "Waiting for an answer (1)", "`Q-001`", "Instructions (1)",
        "`ST-001`: acknowledged",
    ]  # fmt: skip
    assert not any(token.type == "html_block" for token in tokens)


def test_a_page_that_cannot_be_written_stops_nothing(host: Host) -> None:
    runtime = begin(host)
    Path(host.workspace, "steering/inbox.md").mkdir(parents=True)
    runtime.ask("Which licence?")
    runtime.close()
    runtime = host.resume()
    assert list(runtime.state.questions) == ["Q-001"]
    runtime.close()


# Stages


def test_an_instruction_goes_from_accepted_to_reached(host: Host) -> None:
    runtime = begin(host)
    sender = service(host)
    message(
        host, "M-1", "steer", {"text": "metric units", "id": "ST-units", "reading": "amendment"}
    )
    data = sender.inbox()
    (waiting,) = data["accepted"]
    assert (waiting["stage"], waiting["text"], waiting["source"]) == (
        "accepted", "metric units", ANNA,
    )  # fmt: skip
    assert data["steering"] == []
    assert sender.status()["unread"]["accepted"] == 1

    host.clock.advance(2.0)
    runtime.note("whoever commits takes it in")
    data = sender.inbox()
    assert data["accepted"] == []
    (entry,) = data["steering"]
    assert (entry["id"], entry["stage"]) == ("ST-units", "applied")
    events = {event.ref: event for event in runtime.events()}
    assert events[entry["delivered"]].kind == "STEERING_LOGGED"
    assert events[entry["acknowledged"]].payload["op"] == "acknowledged"
    assert set(entry["applied"]) == {"N1", "N2"}
    assert entry["reached"] == {}

    runtime.start("N1")
    entry = sender.inbox()["steering"][0]
    assert events.keys().isdisjoint(entry["reached"].values())
    assert list(entry["reached"]) == ["N1"]
    host.write("artifacts/N1/out.txt", "x")
    runtime.submit("N1")
    runtime.start("N2")
    entry = sender.inbox()["steering"][0]
    assert (entry["stage"], set(entry["reached"])) == ("reached", {"N1", "N2"})


def test_what_is_only_logged_is_called_delivered(host: Host) -> None:
    runtime = begin(host)
    with runtime.engine.writing(), runtime.engine.acting_as(ANNA):
        logged = runtime.engine.execute(c.LogSteering("", "metric units"))
    host.die(runtime)
    data = service(host).inbox()
    (entry,) = data["steering"]
    assert (entry["stage"], entry["delivered"]) == ("delivered", logged.ref)
    assert data["pending"] == service(host).status()["unread"]["pending"] == ["ST-001"]
    host.resume(101).close()
    assert service(host).inbox()["steering"][0]["stage"] == "applied"
    assert service(host).status()["unread"] == {"accepted": 0, "written": [], "pending": []}


def test_a_message_that_was_carried_out_and_not_removed_is_not_listed(host: Host) -> None:
    runtime = begin(host)
    message(host, "M-1", "note", {"text": "a note"})
    host.clock.advance(2.0)
    runtime.note("taken in")
    runtime.close()
    message(host, "M-1", "note", {"text": "a note"})
    assert service(host).inbox()["accepted"] == []


def test_an_instruction_is_whole_where_nothing_is_to_be_cut(host: Host) -> None:
    text = "word " * steering_chars_kept_max
    runtime = begin(host)
    steer(runtime, text, reading="clarification")
    steer(runtime, "short", reading="clarification")
    runtime.close()
    entries = service(host).inbox(whole=True)["steering"]
    assert [entry["text"] for entry in entries] == ["short", text]
    assert service(host).show("ST-001")["said"]["verbatim"] == text
    assert service(host).inbox()["steering"][1]["text"] == text[:steering_chars_kept_max]


# Pages of a large inbox


def test_a_large_inbox_is_read_page_by_page(host: Host) -> None:
    runtime = begin(host)
    for number in range(25):
        runtime.ask(f"Question {number}?")
        steer(runtime, f"number {number}", reading="clarification")
    runtime.close()
    reader, questions, said = service(host), [], []
    page_ = reader.inbox()
    assert (len(page_["questions"]), len(page_["steering"])) == (10, 10)
    after, before = page_["next"], page_["earlier"]
    questions += page_["questions"]
    said += page_["steering"]
    while after:
        page_ = reader.inbox(after=after)
        questions += page_["questions"]
        assert page_["steering"] == []
        after = page_["next"]
    while before:
        page_ = reader.inbox(before=before)
        said += page_["steering"]
        assert page_["questions"] == []
        before = page_["earlier"]
    assert [entry["id"] for entry in questions] == [f"Q-{n:03d}" for n in range(1, 26)]
    assert [entry["id"] for entry in said] == [f"ST-{n:03d}" for n in range(25, 0, -1)]
    assert reader.inbox(after="Q-020")["questions"][0]["id"] == "Q-021"
    assert reader.inbox(before="ST-003")["steering"][0]["id"] == "ST-002"


@pytest.mark.parametrize("where", [{"after": "Q-9"}, {"before": "ST-9"}, {"after": "Q-00"}])
def test_a_page_of_nothing_known_is_refused(host: Host, where: dict[str, str]) -> None:
    runtime = begin(host)
    runtime.ask("Which licence?")
    runtime.answer("Q-001", "MIT", by="gatekeeper:anna")
    runtime.ask("Which title?")
    runtime.close()
    with pytest.raises(HaltError) as refused:
        service(host).inbox(**where)
    assert refused.value.exit_code == 3


def test_a_page_behind_a_question_that_is_closed_says_what_to_name(host: Host) -> None:
    runtime = begin(host)
    runtime.ask("Which licence?")
    runtime.answer("Q-001", "MIT", by="gatekeeper:anna")
    runtime.close()
    with pytest.raises(HaltError) as refused:
        service(host).inbox(after="Q-001")
    assert "J-42" in refused.value.fix


def test_a_listing_in_text_has_a_ceiling_whatever_is_in_it(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = begin(host)
    long = "word\n" * 20_000
    for _ in range(30):
        runtime.ask(long, options=[long] * 3, context=long, consequences=long, links=[long] * 50)
        steer(runtime, long, reading="clarification")
    runtime.close()
    monkeypatch.setenv("PERDURE_WORKSPACE", host.workspace)
    assert main(["inbox"]) == 0
    shown = capsys.readouterr().out
    assert len(shown) < 32_000
    assert max(map(len, shown.splitlines())) <= 220
    assert "... (perdure show Q-001)" in shown
    assert "more questions: perdure inbox --after J-" in shown
    assert "earlier ones: perdure inbox --before J-" in shown
    assert main(["inbox", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["questions"][0]["question"] == long
    assert data["steering"][0]["text"] == long
    assert main(["status"]) == 0
    assert len(capsys.readouterr().out) < 8_000


# The status


def test_the_status_says_what_is_overdue_and_what_nothing_has_acted_on(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = begin(host)
    runtime.ask("Which licence?", timeout_s=1.0)
    runtime.ask("Which title?", node_id="N1", timeout_s=1.0)
    host.clock.advance(-1e8)  # the command line has a clock of its own
    runtime.ask("Which day?", timeout_s=1.0)
    with runtime.engine.writing(), runtime.engine.acting_as(ANNA):
        runtime.engine.execute(c.LogSteering("", "metric units"))
    host.die(runtime)
    message(host, "M-1", "note", {"text": "a note"})
    monkeypatch.setenv("PERDURE_WORKSPACE", host.workspace)
    assert main(["status"]) == 0
    shown = capsys.readouterr().out.splitlines()
    for line in (
        "  stuck      N1 is BLOCKED: question Q-002: Which title? (Q-002)",
        "  then       perdure answer Q-002 TEXT",
        "  questions  Q-001: Which licence?",
        "             perdure answer Q-001 TEXT",
        "             Q-003 (overdue): Which day?",
        "             perdure answer Q-003 TEXT",
        "  unread     1 in the drop box (perdure inbox)",
        "             ST-001: on record, not acted on yet (perdure resume)",
    ):
        assert line in shown
    assert main(["status", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert [(item["id"], item["overdue"]) for item in data["asked"]] == [
        ("Q-001", False), ("Q-002", False), ("Q-003", True),
    ]  # fmt: skip
    assert data["unread"] == {"accepted": 1, "written": [], "pending": ["ST-001"]}


def test_the_status_lists_a_few_questions_and_counts_the_rest(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = begin(host)
    for number in range(20):
        runtime.ask(f"Question {number}?")
    runtime.close()
    monkeypatch.setenv("PERDURE_WORKSPACE", host.workspace)
    for arguments, left in ((["status"], 12), (["status", "--limit", "3"], 17)):
        assert main(arguments) == 0
        assert f"and {left} more: perdure inbox" in capsys.readouterr().out
