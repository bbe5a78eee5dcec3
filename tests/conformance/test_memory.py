"""What outlives a task: entries that count, drafts, near duplicates, freshness (ME-1 to ME-4)."""

import json
import os
from pathlib import Path

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.core.memory import read_entries
from perdure.core.memory_index import index_entries_max
from perdure.errors import CorruptError, HaltError, NotFoundError, RefusedError, UsageError
from perdure.runtime.calls import perform
from perdure.service.memory import Memory
from perdure.service.memory_reading import Place

LIMIT = "The API of shop X answers 429 above 5 requests a second"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    project = tmp_path / "shop"
    (project / ".perdure" / "tasks").mkdir(parents=True)
    return Host(str(project / ".perdure" / "tasks"))


def memory(host: Host, *, actor: str = "coordinator:main", user: str = "user") -> Memory:
    project = Path(host.workspace).parents[2]
    environ = {"PERDURE_MEMORY": str(project.parent / user)}
    workspace = host.workspace if os.path.exists(f"{host.workspace}/journal.jsonl") else None
    return Memory(Place(str(project), environ, actor, workspace), world=host.world())


def entries_file(host: Host) -> Path:
    return Path(host.workspace).parents[1] / "memory" / "entries.jsonl"


def refs(found: dict[str, object]) -> list[str]:
    entries = found["entries"]
    assert isinstance(entries, list)
    return [str(entry["ref"]) for entry in entries]


def test_me_1_an_entry_is_never_edited_but_superseded(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env", evidence=["docs/a.md"])
    first = entries_file(host).read_bytes()
    told = kept.supersede(["MEM-0001"], "Shop X allows 10 calls per second", evidence=["b.md"])
    assert told["entry"]["evidence"] == ["b.md"]
    assert told["committed"] == "project:MEM-0002"
    assert entries_file(host).read_bytes().startswith(first), "the old line stays as it was"
    shown = kept.show("mem-1")
    assert (shown["entry"]["id"], shown["superseded"]) == ("MEM-0002", True)
    assert [one["id"] for one in shown["chain"]] == ["MEM-0001", "MEM-0002"]
    assert refs(kept.search("shop")) == ["project:MEM-0002"]
    assert len(refs(kept.search("shop", everything=True))) == 2
    with pytest.raises(RefusedError) as caught:
        kept.supersede(["MEM-0001"], "Shop X has closed")
    assert caught.value.code == "not_a_head"
    assert "MEM-0002" in (caught.value.fix or "")


def test_me_1_several_entries_become_one(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    kept.add("Shop X is closed on Sundays, and its API with it", kind="env")
    kept.supersede(["MEM-0001", "MEM-0002"], "Shop X shut down for good in 2027", evidence=["c"])
    assert refs(kept.search("")) == ["project:MEM-0003"]
    assert kept.show("MEM-0002")["entry"]["id"] == "MEM-0003"


def test_me_1_an_unknown_entry_cannot_be_superseded(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    before = entries_file(host).read_bytes()
    with pytest.raises(NotFoundError) as caught:
        kept.supersede(["MEM-0010"], "anything")
    assert (caught.value.exit_code, caught.value.code) == (3, "unknown_entry")
    assert "MEM-0001" in caught.value.suggestions
    assert entries_file(host).read_bytes() == before


def test_me_1_what_is_due_says_so_until_it_is_rechecked(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="method", evidence=["a"], recheck_after="2000-01-01")
    assert refs(kept.due()) == ["project:MEM-0001"]
    assert kept.search("shop")["entries"][0]["flags"] == ["due"]
    with pytest.raises(UsageError) as caught:
        kept.supersede(["MEM-0001"], evidence=["looked again"])
    assert caught.value.code == "still_due"
    kept.supersede(["MEM-0001"], recheck_after="2999-01-01")
    assert refs(kept.due()) == []
    assert kept.show("MEM-0001")["entry"]["statement"] == LIMIT


@pytest.mark.parametrize("kind", ["env", "method"])
def test_me_1_an_environment_is_looked_at_before_it_is_relied_on(host: Host, kind: str) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind=kind, evidence=["a"])
    assert kept.show("MEM-0001")["entry"]["flags"] == (["recheck"] if kind == "env" else [])


def test_me_2_an_order_is_pointed_out_and_not_refused(host: Host) -> None:
    told = memory(host).add("Always run the linter before a commit", kind="method", evidence=["a"])
    assert [line for line in told["warnings"] if "ME-2" in line]
    fact = memory(host).add("The linter finds unused imports", kind="method", evidence=["a"])
    assert fact["warnings"] == []


def test_me_3_without_evidence_it_is_a_draft_and_says_so(host: Host) -> None:
    told = memory(host).add(LIMIT, kind="method")
    assert [line for line in told["warnings"] if "draft" in line]
    assert memory(host).show("MEM-0001")["entry"]["flags"] == ["draft"]


def test_me_3_what_proved_the_old_statement_does_not_prove_the_new_one(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="method", evidence=["a"], recheck_after="2999-01-01")
    kept.supersede(["MEM-0001"], "Shop X allows 10 calls per second")
    assert kept.show("MEM-0001")["entry"]["flags"] == ["draft"]
    assert kept.show("MEM-0001")["entry"]["freshness"] == "stable"


def test_me_3_an_event_is_cited_so_that_others_can_follow(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "measure the limit")
    told = memory(host).add(LIMIT, kind="env", evidence=["J-2"])
    assert told["entry"]["evidence"] == ["T1#J-2"]
    with pytest.raises(NotFoundError) as caught:
        memory(host).add("Shop Y has no limit at all", kind="env", evidence=["J-99"])
    assert caught.value.rule == "ME-3"


@pytest.mark.parametrize(
    ("said", "again"),
    [
        (LIMIT, "the api of shop x answers 429 above 5 requests a second."),
        (LIMIT, "Above 5 requests a second the API of shop X answers 429"),
        ("店铺X的接口每秒超过五个请求返回429错误", "店铺X的接口每秒超过五个请求会返回429错误"),
        ("サーバーは毎晩零時に再起動される", "サーバーは毎晩零時に再起動する"),
    ],
)
def test_me_4_what_is_said_already_is_not_said_again(host: Host, said: str, again: str) -> None:
    kept = memory(host)
    kept.add(said, kind="method", evidence=["a"])
    before = entries_file(host).read_bytes()
    with pytest.raises(RefusedError) as caught:
        kept.add(again, kind="method", evidence=["b"])
    assert (caught.value.code, caught.value.rule) == ("near_duplicate", "ME-4")
    assert "project:MEM-0001" in (caught.value.fix or "")
    assert entries_file(host).read_bytes() == before
    told = kept.add(again, kind="method", evidence=["b"], distinct="of another shop")
    assert told["committed"] == "project:MEM-0002"


def test_me_4_what_was_superseded_is_no_duplicate_and_other_scopes_are_not_asked(
    host: Host,
) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    kept.supersede(["MEM-0001"], "Nothing is known of that any more", evidence=["a"])
    kept.add(LIMIT, kind="env", scope="project:other")
    kept.add(LIMIT, kind="env", evidence=["b"])
    assert len(refs(kept.search("429"))) == 2


def test_me_4_the_index_stays_bounded(host: Host) -> None:
    kept = memory(host)
    for number in range(index_entries_max + 50):
        kept.add(f"{number:04d}" * 9, kind="env", evidence=["a"], distinct="counted")
    page = (entries_file(host).parent / "MEM-INDEX.md").read_text()
    assert f"{index_entries_max + 50} entries that count" in page
    assert sum(line.startswith("- ") for line in page.splitlines()) <= index_entries_max
    assert "more of kind" in page


def test_mb_1_progress_of_the_task_belongs_in_its_journal(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "measure the limit")
    with pytest.raises(RefusedError) as caught:
        memory(host).add("N1 is DONE and measured", kind="method")
    assert (caught.value.code, caught.value.rule) == ("progress_in_memory", "MB-1")
    assert not entries_file(host).exists()
    told = memory(host).add("7 of 9 pages are finished", kind="method", evidence=["a"])
    assert [line for line in told["warnings"] if "MB-1" in line]


def test_mb_2_a_proposal_of_the_archive_is_taken_by_a_person_only_once(host: Host) -> None:
    with host.open() as rt:
        rt.add_node("N1", "count the pages", outputs=["artifacts/N1/out.txt"])
        rt.start("N1")
        rt.fail("N1", "transient-agent", "ran out of words")
        rt.retry("N1", "smaller pieces", method="pieces")
        host.finish(rt, "N1")
        perform(rt.engine, "archive", {"scope": "project:shop"})
    kept = memory(host)
    listed = kept.proposals()["proposals"]
    assert listed
    assert not entries_file(host).exists(), "proposing writes nothing"
    assert not any(one["added"] for one in listed)
    kept.add("", kind="method", proposal=str(listed[0]["id"]).lower(), distinct="so proposed")
    again = kept.proposals()["proposals"]
    assert [one["added"] for one in again] == [True] + [False] * (len(again) - 1)


def test_a_decision_cites_the_entry_that_counts(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env", evidence=["a"])
    kept.supersede(["MEM-0001"], "Shop X allows 10 calls per second", evidence=["b.md"])
    cited = kept.cite(["mem-0001"])
    assert [(one["id"], one["store"]) for one in cited] == [("MEM-0002", "project")]
    assert cited[0]["flags"] == ["recheck", "cited as MEM-0001"]
    with host.open() as rt:
        perform(rt.engine, "decide", {"text": "as measured", "memory": cited})
        event = rt.events()[-1]
    assert event.payload["memory"] == cited
    assert "project:MEM-0002" in event.evidence


def test_both_stores_are_searched_and_an_id_of_both_has_to_be_said_whole(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    kept.add("Ann reads reports in the morning", kind="preference", scope="user:ann")
    assert set(refs(kept.search(""))) == {"project:MEM-0001", "user:MEM-0001"}
    with pytest.raises(UsageError) as caught:
        kept.show("MEM-0001")
    assert caught.value.code == "ambiguous_entry"
    assert kept.show("user:MEM-0001")["entry"]["kind"] == "preference"


def test_an_index_edited_by_hand_is_kept_aside_and_not_believed(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    index = entries_file(host).parent / "MEM-INDEX.md"
    index.write_text(index.read_text() + "- MEM-0002 invented\n")
    found = kept.search("invented")
    assert found["entries"] == []
    assert "edited by hand" in found["notices"][0]
    told = kept.add("Shop Y has no limit at all", kind="env")
    assert "those bytes are in" in told["notices"][0]
    aside = next(entries_file(host).parent.glob("MEM-INDEX.edited-*.md"))
    assert "invented" in aside.read_text()
    assert "invented" not in index.read_text()


@pytest.mark.parametrize("damage", ["changed", "removed", "twice"])
def test_nothing_is_added_behind_damage(host: Host, damage: str) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    kept.add("Shop Y has no limit at all", kind="env")
    lines = entries_file(host).read_bytes().splitlines(keepends=True)
    changed = {
        "changed": lines[0].replace(b"429", b"503") + lines[1],
        "removed": lines[0],
        "twice": lines[0] + lines[1] + lines[1],
    }[damage]
    entries_file(host).write_bytes(changed)
    with pytest.raises(CorruptError) as caught:
        kept.add("A third thing entirely", kind="env")
    assert (caught.value.exit_code, caught.value.code) == (6, "memory_corrupt")
    assert entries_file(host).read_bytes() == changed
    assert kept.search("")["notices"]


def test_an_entry_behind_damage_is_not_told_to_be_unknown(host: Host) -> None:
    kept = memory(host)
    kept.add(LIMIT, kind="env")
    kept.add("Shop Y has no limit at all", kind="env")
    damaged = entries_file(host).read_bytes().replace(b"429", b"503")
    entries_file(host).write_bytes(damaged)
    for ask in (lambda: kept.show("MEM-0002"), lambda: kept.cite(["MEM-0002"])):
        with pytest.raises(CorruptError) as caught:
            ask()
        assert caught.value.exit_code == 6


def test_the_same_operation_again_is_the_same_entry(host: Host) -> None:
    one = memory(host).add(LIMIT, kind="env", op="op-1")
    two = memory(host).add(LIMIT, kind="env", op="op-1")
    assert (one["committed"], two["committed"]) == ("project:MEM-0001", "project:MEM-0001")
    assert two["repeated"] is True


def test_secrets_are_masked_before_anything_is_written(host: Host) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    told = memory(host).add(f"The bucket opens with {key}", kind="env", evidence=[f"x {key}"])
    assert sum(told["masked"].values()) == 2
    for path in entries_file(host).parent.iterdir():
        assert key.encode() not in path.read_bytes()


def test_an_operation_with_a_secret_for_a_name_is_refused(host: Host) -> None:
    with pytest.raises(RefusedError) as caught:
        memory(host).add(LIMIT, kind="env", op="ghp_" + "a1B2c3D4e5" * 4)
    assert caught.value.code == "secret_in_id"
    assert not entries_file(host).exists()


def test_what_the_task_declares_is_a_secret_to_the_memory_too(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_PHRASE", "correct horse battery")
    HaltRuntime(
        host.workspace, "T1", source={"secrets": ["HOUSE_PHRASE"]}, world=host.world()
    ).close()
    told = memory(host).add("The phrase is correct horse battery", kind="env")
    assert told["masked"] == {"HOUSE_PHRASE": 1}
    for path in entries_file(host).parent.iterdir():
        assert b"horse" not in path.read_bytes()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"statement": " "}, "empty_text"),
        ({"statement": "x" * 5000}, "too_large"),
        ({"kind": "methd"}, "unknown_kind"),
        ({"scope": "projekt:x"}, "bad_scope"),
        ({"recheck_after": "next week"}, "bad_date"),
        ({"store": "team"}, "unknown_store"),
        ({"evidence": ["x"] * 1 + [f"r{n}" for n in range(100)]}, "too_many"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    host: Host, change: dict[str, object], code: str
) -> None:
    good: dict[str, object] = {"statement": LIMIT, "kind": "env"}
    with pytest.raises(HaltError) as caught:
        memory(host).add(**(good | change))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.fix
    assert caught.value.rule
    assert not entries_file(host).exists()


def test_a_line_that_another_program_wrote_counts(host: Host) -> None:
    """A store may come from elsewhere: its lines have no chain and no author."""
    line = {
        "id": "MEM-0007", "kind": "env", "scope": "project:shop", "statement": LIMIT,
        "evidence_refs": ["J-1"], "created": "2026-01-01", "supersedes": [], "freshness": "stable",
    }  # fmt: skip
    entries_file(host).parent.mkdir(parents=True)
    entries_file(host).write_text(json.dumps(line) + "\n")
    told = memory(host).add("Shop Y has no limit at all", kind="env")
    assert told["committed"] == "project:MEM-0008"
    assert len(read_entries(entries_file(host).read_bytes()).entries) == 2
