"""The supervisor looks without touching, remembers what it said, and says a thing once."""

import json
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from perdure import HaltRuntime, Supervisor
from perdure.control.notify_config import Channel, NotifyConfig
from perdure.core.supervision_records import SupervisionFile
from perdure.errors import UsageError
from perdure.runtime.calls import perform
from perdure.runtime.world import World
from perdure.storage.supervision_file import LOCK_NAME, SupervisionStore, open_requests
from perdure.storage.workspace import Layout
from perdure.testing import (
    Killed,
    SimClock,
    SimDisk,
    SimProcesses,
    next_world,
    power_loss_states,
    sim_world,
)

W = "/w"
FILE = f"{W}/supervision.json"
TERMINAL = NotifyConfig()
Report = dict[str, Any]


class Bench:
    """A task in a simulated world, and supervisors of it."""

    def __init__(self) -> None:
        self.world = sim_world()
        self.emitted: list[Report] = []
        with HaltRuntime(W, "T", world=self.world) as runtime:
            runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"])
            runtime.add_node("N2", "second", deps=["N1"], outputs=["artifacts/N2/b.txt"])

    @property
    def clock(self) -> SimClock:
        assert isinstance(self.world.clock, SimClock)
        return self.world.clock

    @property
    def disk(self) -> SimDisk:
        assert isinstance(self.world.disk, SimDisk)
        return self.world.disk

    @property
    def processes(self) -> SimProcesses:
        assert isinstance(self.world.processes, SimProcesses)
        return self.world.processes

    def supervisor(self, config: NotifyConfig | None = TERMINAL) -> Supervisor:
        return Supervisor(W, world=self.world, config=config, emit=self.emitted.append)

    def apply(self, minutes: float = 0.0) -> Report:
        self.clock.advance(minutes * 60)
        return self.supervisor().apply()

    def file(self) -> SupervisionFile:
        return SupervisionStore(self.disk, W).load("T").file

    def call(self, name: str, **args: Any) -> Report:
        with HaltRuntime(W, world=self.world, take_over_sessions=False) as runtime:
            return dict(perform(runtime.engine, name, args))

    def finish(self, node: str, output: str) -> None:
        with HaltRuntime(W, world=self.world) as runtime:
            runtime.start(node)
            self.disk.make_dirs(f"{W}/artifacts/{node}")
            self.disk.replace(f"{W}/artifacts/{node}/{output}", b"good\n", durable=True)
            runtime.submit(node)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def without(tree: dict[str, Any], *names: str) -> dict[str, Any]:
    return {path: data for path, data in tree.items() if path.rpartition("/")[2] not in names}


# Looking


def test_looking_changes_not_a_byte(bench: Bench) -> None:
    before, log = bench.disk.tree(), len(bench.disk.log)
    assert bench.supervisor().evaluate()["state"] == "OK"
    assert bench.supervisor().evaluate(bench.clock.now() + 3_600)["state"] == "NUDGE_MAIN_AGENT"
    assert bench.disk.tree() == before
    assert len(bench.disk.log) == log


def test_acting_changes_its_own_file_and_nothing_else(bench: Bench) -> None:
    before = bench.disk.tree()
    assert bench.apply(40)["applied"]
    assert without(bench.disk.tree(), "supervision.json", LOCK_NAME) == before


def test_a_report_has_the_fields_of_the_contract(bench: Bench) -> None:
    fields = {
        "task_id", "status", "state", "reason", "action", "current_step", "truth_state",
        "inconsistencies", "suspicious_external_jobs", "pending_external", "retry_count",
        "last_progress_age_sec", "last_heartbeat_age_sec", "user_facing", "next_action",
    }  # fmt: skip
    report = bench.supervisor().evaluate()
    assert fields <= report.keys()
    missing = Supervisor("/nowhere", world=bench.world).evaluate()
    assert missing.keys() == report.keys()
    json.dumps([report, missing])  # plain data
    assert (report["current_step"], report["last_progress_age_sec"]) == ("N1", 0.0)


def test_a_workspace_that_is_not_there_is_an_error_and_nothing_is_made(bench: Bench) -> None:
    before = bench.disk.tree()
    supervisor = Supervisor("/nowhere", world=bench.world)
    for report in (supervisor.evaluate(), supervisor.apply()):
        assert report["state"] == "ERROR"
        assert report["error"]["code"] == "no_workspace"
        assert report["error"]["fix"]
    assert bench.disk.tree() == before


def test_a_damaged_journal_is_an_error_and_nothing_is_made(bench: Bench) -> None:
    journal = bench.disk.read(f"{W}/journal.jsonl")
    lines = journal.splitlines(keepends=True)
    spoilt = lines[0] + b"x" + b"".join(lines[1:])
    bench.disk.replace(f"{W}/journal.jsonl", spoilt, durable=True)
    before = without(bench.disk.tree(), LOCK_NAME)
    for report in (bench.supervisor().evaluate(), bench.supervisor().apply()):
        assert report["error"]["code"] == "journal_corrupt"
        assert report["error"]["exit_code"] == 6
    assert without(bench.disk.tree(), LOCK_NAME) == before


def test_what_a_crash_left_at_the_end_of_the_journal_is_no_error(bench: Bench) -> None:
    path = f"{W}/journal.jsonl"
    torn = bench.disk.read(path) + b'{"seq":99,"ts":"2027'
    bench.disk.replace(path, torn, durable=True)
    for report in (bench.supervisor().evaluate(), bench.supervisor().apply()):
        assert (report["state"], report["error"]) == ("OK", None)
    assert bench.disk.read(path) == torn


# Saying a thing once


def test_the_owner_is_asked_once_with_a_token(bench: Bench) -> None:
    report = bench.apply(40)
    assert (report["state"], report["action"]) == ("NUDGE_MAIN_AGENT", "send_execution_nudge")
    (request,) = report["resume_requests"]
    assert request["token"] == "T:N1:NUDGE_MAIN_AGENT:20270115T084000Z"
    assert request["delivery"] == "sent"  # the inbox is the file itself
    assert bench.apply(1)["state"] == "STALE_PROGRESS"
    assert [r.token for r in bench.file().requests] == [request["token"]]


def test_the_moment_given_is_the_moment_of_everything(bench: Bench) -> None:
    then = bench.clock.now() + 40 * 60
    bench.supervisor().apply(then)
    file = bench.file()
    assert file.updated_at == file.memory.nudged_at == file.requests[0].requested == then
    assert file.actions[0].at == file.requests[0].delivered_at == then


def test_two_nudges_come_before_the_owner_is_asked_to_reconcile(bench: Bench) -> None:
    states = [bench.apply(minutes)["state"] for minutes in (31, 31, 31)]
    assert states == ["NUDGE_MAIN_AGENT", "NUDGE_MAIN_AGENT", "OWNER_RECONCILE"]
    outcomes = [request.outcome for request in bench.file().requests]
    assert outcomes[0].startswith("asked again as T:N1:NUDGE_MAIN_AGENT:")
    assert outcomes[-1] == ""


def test_two_requests_of_one_second_have_a_token_each(bench: Bench) -> None:
    then = bench.clock.now() + 3_000
    bench.supervisor().apply(then)
    file = bench.file()
    file.memory = type(file.memory)()  # as if it had not been said
    SupervisionStore(bench.disk, W).save(file)
    bench.supervisor().apply(then)
    first, second = (request.token for request in bench.file().requests)
    assert second == f"{first}-2"


def test_a_reply_with_the_token_is_read_from_the_journal(bench: Bench) -> None:
    token = bench.apply(40)["resume_requests"][0]["token"]
    bench.clock.advance(60)
    layout = Layout(W)
    with HaltRuntime(W, world=bench.world) as runtime:
        assert [r["token"] for r in open_requests(bench.disk, layout, runtime.state)] == [token]
        perform(runtime.engine, "reply", {"letter": "A", "node": "N1", "resume_token": token})
        assert open_requests(bench.disk, layout, runtime.state) == []
        replied_at = runtime.state.observed.reply.at  # type: ignore[union-attr]
    report = bench.apply()
    assert (report["state"], report["resume_requests"]) == ("OK", [])
    (request,) = bench.file().requests
    assert (request.acknowledged, request.outcome) == (replied_at, "A")


def test_a_request_is_overtaken_when_work_goes_on(bench: Bench) -> None:
    bench.apply(40)
    bench.call("observe", what="progress", node="N1")
    assert bench.apply()["resume_requests"] == []
    assert bench.file().requests[0].outcome == "overtaken"


def test_the_requester_hears_of_each_step_once(bench: Bench) -> None:
    bench.finish("N1", "a.txt")
    assert [sent["channel"] for sent in bench.apply()["delivered"]] == ["terminal"]
    bench.apply(1)
    (message,) = bench.emitted
    assert (message["kind"], message["to"]) == ("STEP_COMPLETED", "requester")
    assert message["data"]["entity"] == "N1"
    assert message["id"] in bench.file().delivered


def test_what_is_for_a_terminal_waits_for_somebody_at_one(bench: Bench) -> None:
    bench.finish("N1", "a.txt")
    alone = Supervisor(W, world=bench.world, config=TERMINAL)
    report = alone.apply()
    (message,) = report["messages"]
    assert (report["delivered"], report["updates_pending"]) == ([], 1)
    assert alone.apply()["messages"] == [message]
    alone.shown([message])
    assert alone.apply()["messages"] == []
    assert message["id"] in bench.file().delivered
    bench.apply()
    assert bench.emitted == []


def test_with_nobody_to_tell_an_update_is_done_with(bench: Bench) -> None:
    bench.finish("N1", "a.txt")
    report = bench.supervisor(NotifyConfig((), ())).apply()
    assert (report["delivered"], report["updates_pending"]) == ([], 0)


def test_a_completed_task_is_handed_off_and_supervision_ends(bench: Bench) -> None:
    bench.finish("N1", "a.txt")
    bench.finish("N2", "b.txt")
    bench.call("observe", what="task-completed", summary="all there")
    report = bench.apply()
    assert (report["state"], report["action"]) == ("STOP_AND_DELETE", "delete_monitor")
    assert [m["kind"] for m in bench.emitted] == [
        "STEP_COMPLETED", "STEP_COMPLETED", "COMPLETED_HANDOFF",
    ]  # fmt: skip
    assert bench.emitted[-1]["data"]["outcome"] == "SUCCESS"
    assert bench.file().stopped_at == bench.clock.now()
    assert bench.apply(60)["delivered"] == []


# Channels that fail


def test_a_channel_that_fails_is_tried_again_later_and_later(bench: Bench) -> None:
    config = NotifyConfig((), (Channel("command", argv=("no-such-program",)), Channel("terminal")))
    bench.finish("N1", "a.txt")
    first = bench.supervisor(config).apply()
    assert "no-such-program" in first["failed"][0]["problem"]
    assert len(bench.emitted) == 1  # the other channel has it all the same
    tries = [len(bench.supervisor(config).apply()["failed"])]
    for seconds in (29, 1, 30, 30):
        bench.clock.advance(seconds)
        tries.append(len(bench.supervisor(config).apply()["failed"]))
    assert tries == [0, 0, 1, 0, 1]
    (queued,) = bench.file().pending.values()
    assert (queued.attempts, list(queued.delivered)) == (3, ["terminal"])
    assert "no-such-program" in queued.error
    assert len(bench.emitted) == 1
    assert bench.apply()["updates_pending"] == 0  # once the channel is taken out of the file


def test_a_channel_that_is_down_is_asked_once_in_a_pass(bench: Bench) -> None:
    config = NotifyConfig((), (Channel("command", argv=("no-such-program",)),))
    bench.finish("N1", "a.txt")
    bench.finish("N2", "b.txt")
    assert len(bench.supervisor(config).apply()["failed"]) == 1
    assert bench.file().pending.keys() == {
        q.update.update_id for q in bench.file().pending.values()
    }
    assert len(bench.file().pending) == 2


def test_an_unset_variable_holds_its_own_channel_only(bench: Bench) -> None:
    config = NotifyConfig((Channel("webhook", "${NOT_SET}"),))
    bench.finish("N1", "a.txt")
    bench.clock.advance(40 * 60)
    report = bench.supervisor(config).apply()
    assert "NOT_SET is not set" in report["failed"][0]["problem"]
    assert [sent["channel"] for sent in report["delivered"]] == ["terminal"]
    assert report["resume_requests"][0]["delivery"] == "failed"
    assert "NOT_SET" in bench.file().requests[0].error


def test_a_file_of_channels_that_is_wrong_holds_messages_and_nothing_else(bench: Bench) -> None:
    bench.disk.replace(f"{W}/notify.yaml", b"owner: somebody", durable=True)
    bench.finish("N1", "a.txt")
    bench.clock.advance(40 * 60)
    report = bench.supervisor(None).apply()
    assert report["notify_error"]["code"] == "notify_invalid"
    assert (report["state"], report["updates_pending"]) == ("NUDGE_MAIN_AGENT", 1)
    assert bench.file().memory.nudges == 1
    bench.disk.replace(f"{W}/notify.yaml", b"owner: []", durable=True)
    assert bench.supervisor(None).apply()["updates_pending"] == 0


# One supervisor at a time


def test_while_another_is_at_work_it_only_looks(bench: Bench) -> None:
    lock = SupervisionStore(bench.disk.beside(), W).lock()
    assert lock.try_acquire()
    before = bench.disk.tree()
    report = bench.apply(40)
    assert (report["state"], report["applied"]) == ("NUDGE_MAIN_AGENT", False)
    assert "another supervisor" in report["notices"][0]
    assert bench.disk.tree() == before
    lock.release()
    assert bench.apply()["applied"]


def test_messages_on_their_way_to_a_reader_are_found_by_nobody_else(bench: Bench) -> None:
    bench.call("block", node="N1", reason="r", needs=["n"], safe_next_step="s")
    beside = bench.world._replace(disk=bench.disk.beside())
    first, second = (Supervisor(W, world=w, config=TERMINAL) for w in (bench.world, beside))
    (message,) = first.apply(until_shown=True)["messages"]
    looked = second.apply()
    assert (looked["applied"], looked["messages"]) == (False, [])
    first.shown([message])
    looked = second.apply()
    assert (looked["applied"], looked["messages"]) == (True, [])
    assert first.apply(until_shown=True)["messages"] == []
    assert second.apply()["applied"], "with nothing to show nobody is kept out"


def test_messages_that_were_never_shown_are_found_by_the_next(bench: Bench) -> None:
    bench.call("block", node="N1", reason="r", needs=["n"], safe_next_step="s")
    beside = bench.world._replace(disk=bench.disk.beside())
    first, second = (Supervisor(W, world=w, config=TERMINAL) for w in (bench.world, beside))
    messages = first.apply(until_shown=True)["messages"]
    assert first.apply(until_shown=True)["messages"] == messages
    assert not second.apply()["applied"]
    del first
    assert second.apply()["messages"] == messages


# Damage


@pytest.mark.parametrize("now", [float("nan"), float("inf"), -1e300, 1e12])
def test_a_moment_that_no_calendar_has_is_refused(bench: Bench, now: float) -> None:
    for act in (bench.supervisor().evaluate, bench.supervisor().apply):
        with pytest.raises(UsageError, match="the years 1 to 9999"):
            act(now)
    assert bench.disk.stat(FILE) is None


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b"[]", b'{"memory": 3}', b"\xff", b'{"version": 99}', b'{"task_id": "OTHER"}',
        (b'{"resume_requests": [{"token": "t", "kind": "OWNER_RECONCILE", "step": "", "reason": "",'
        b' "requested": 1e300}]}'),
        (b'{"pending_updates": {"u": {"update": {"update_id": "u", "kind": "STEP_COMPLETED",'
         b' "text": "t"}, "queued_at": -1e12}}}'),
    ],
)  # fmt: skip
def test_a_damaged_file_is_kept_and_started_anew(bench: Bench, damage: bytes) -> None:
    bench.disk.replace(FILE, damage, durable=True)
    assert "--apply sets it aside" in bench.supervisor().evaluate()["notices"][0]
    assert bench.disk.read(FILE) == damage
    report = bench.apply(40)
    assert "supervision.json.damaged-1" in report["notices"][0]
    assert bench.disk.read(f"{FILE}.damaged-1") == damage
    assert bench.file().memory.nudges == 1
    bench.disk.replace(FILE, damage, durable=True)
    bench.apply()
    assert bench.disk.read(f"{FILE}.damaged-2") == damage


def test_text_that_is_no_whole_unicode_is_kept_and_read_again(bench: Bench) -> None:
    bench.call("block", node="N1", reason="no \udcff", needs=["\udcfe"], safe_next_step="s")
    bench.apply()
    (first,) = bench.emitted
    assert "no \udcff" in first["text"]
    again = bench.apply()
    assert (again["notices"], again["state"], bench.emitted) == ([], "STOP_AND_DELETE", [first])
    assert "no \udcff" in bench.file().actions[0].reason


def test_fields_of_a_later_version_are_passed_over(bench: Bench) -> None:
    bench.disk.replace(FILE, b'{"task_id": "T", "later": [1]}', durable=True)
    assert bench.apply()["notices"] == []


# What else it looks at


def start_work(bench: Bench, pid: int) -> None:
    """N1 is at work under a coordinator that is a process of its own."""
    world = bench.world._replace(processes=bench.processes.seen_from(pid))
    runtime = HaltRuntime(W, world=world)
    runtime.start("N1")
    runtime.close()


def test_a_process_that_is_gone_is_suspected_with_what_was_seen(bench: Bench) -> None:
    start_work(bench, 4711)
    assert bench.apply()["suspected"] == {}
    bench.processes.kill(4711)
    journal = bench.disk.read(f"{W}/journal.jsonl")
    report = bench.apply()
    assert report["state"] == "OWNER_RECONCILE"
    said = report["suspected"]["N1"]
    assert "4711" in said["observation"]
    assert said["policy"]
    assert "dead" not in report["reason"]
    assert bench.disk.read(f"{W}/journal.jsonl") == journal
    assert bench.apply(1)["resume_requests"][0]["step"] == "N1"


def test_a_process_that_is_silent_is_not_suspected(bench: Bench) -> None:
    start_work(bench, 4711)
    report = bench.apply(40)
    assert (report["state"], report["suspected"]) == ("NUDGE_MAIN_AGENT", {})


def test_a_restarted_machine_is_named(bench: Bench) -> None:
    start_work(bench, 4711)
    bench.processes.reboot()
    bench.processes.spawn(4711)
    bench.world = bench.world._replace(processes=bench.processes.seen_from(4712))
    assert "restarted" in bench.apply()["suspected"]["N1"]["observation"]


def test_a_session_that_let_its_contract_run_out_is_suspected(bench: Bench) -> None:
    bench.call("start", node="N1")
    assert bench.apply(29)["suspected"] == {}
    bench.call("beat", node="N1")
    assert bench.apply(29)["suspected"] == {}
    said = bench.apply(3)["suspected"]["N1"]
    assert (said["kind"], said["policy"]) == ("contract_expired", "contract_ttl_s = 1800")


def test_progress_counts_for_a_session_like_a_beat(bench: Bench) -> None:
    bench.call("start", node="N1")
    bench.clock.advance(29 * 60)
    bench.call("observe", what="progress", node="N1")
    assert bench.apply(5)["suspected"] == {}


def test_an_artifact_that_is_missing_or_changed_contradicts(bench: Bench) -> None:
    bench.finish("N1", "a.txt")
    path = f"{W}/artifacts/N1/a.txt"
    bench.clock.advance(1)
    bench.disk.replace(path, b"bad!\n", durable=True)
    assert bench.apply()["inconsistencies"] == ["artifact:changed:A-N1"]
    bench.disk.unlink(path, durable=True)
    report = bench.apply()
    assert (report["state"], report["inconsistencies"]) == (
        "TRUTH_INCONSISTENT",
        ["artifact:missing:A-N1"],
    )


# A crash at every step

Emitted = list[Report]


BOTH = NotifyConfig((Channel("terminal"),), (Channel("terminal"),))


def applied(world: World, emitted: Emitted) -> Report:
    disk = world.disk
    assert isinstance(disk, SimDisk)

    def emit(message: Report) -> None:
        if disk.is_dead:
            raise Killed
        emitted.append(message)

    return Supervisor(W, world=world, config=BOTH, emit=emit).apply()


def scene() -> Bench:
    """One step done, then silence: there is something for each receiver."""
    bench = Bench()
    bench.finish("N1", "a.txt")
    bench.clock.advance(40 * 60)
    return bench


def killed_at(step: int, *, torn_bytes: int | None) -> tuple[Bench, SimDisk, Emitted, bool]:
    bench, emitted = scene(), []
    disk = bench.disk.beside(cut_after=step, torn_bytes=torn_bytes)
    with suppress(Killed):
        applied(bench.world._replace(disk=disk), emitted)
    return bench, disk, emitted, disk.is_dead


@pytest.mark.parametrize("torn_bytes", [None, 1, 100])
def test_a_supervisor_killed_at_any_step_says_everything_again_under_its_old_id(
    torn_bytes: int | None,
) -> None:
    whole: Emitted = []
    applied(scene().world, whole)
    assert [message["kind"] for message in whole] == ["NUDGE_MAIN_AGENT", "STEP_COMPLETED"]
    step, ended = 0, False
    while not ended:
        bench, disk, emitted, died = killed_at(step, torn_bytes=torn_bytes)
        ended, step = not died, step + 1
        left = disk.survive_kill()
        world = next_world(bench.world, left)
        report = applied(world, emitted)
        check(left, emitted, report, most=2 if died else 1)
    assert step > 12


@pytest.mark.parametrize("model", ["ordered", "independent"])
def test_a_power_cut_at_any_step_loses_no_message(model: Any) -> None:
    step, ended = 0, False
    while not ended:
        bench, disk, emitted, died = killed_at(step, torn_bytes=None)
        ended, step = not died, step + 1
        for left in power_loss_states(disk, model, chance=Random(step), limit=12):
            again = list(emitted)
            world = next_world(bench.world, left, power_cut=True)
            report = applied(world, again)
            check(left, again, report, most=2)


def check(disk: SimDisk, emitted: Emitted, report: Report, *, most: int) -> None:
    """Each message arrived, under one id, and the one that was being sent perhaps twice."""
    counts = Counter((message["kind"], message["id"]) for message in emitted)
    assert sorted(kind for kind, _ in counts) == ["NUDGE_MAIN_AGENT", "STEP_COMPLETED"]
    assert max(counts.values()) <= most
    assert sum(counts.values()) <= 3
    assert report["error"] is None
    assert not [name for name in disk.list_dir(W) if "damaged" in name]
    file = SupervisionStore(disk, W).load("T").file
    assert file.pending == {}
    assert sum(1 for request in file.requests if not request.outcome) == 1
    assert file.memory.nudges == 1


class Table:
    """A crontab in memory, which outlives whoever edits it."""

    def __init__(self, lines: set[str], disk: SimDisk) -> None:
        self.lines = lines
        self.disk = disk

    def put(self, line: str, mark: str) -> bool:
        assert line.endswith(mark)
        self.disk.stat(FILE)  # a process that is dead reaches nothing
        added = mark not in self.lines
        self.lines.add(mark)
        return added

    def remove(self, mark: str) -> bool:
        found = mark in self.lines
        self.lines.discard(mark)
        return found


def test_a_line_that_is_in_the_crontab_is_known_whenever_its_supervisor_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, lines, ended = 0, set[str](), False
    while not ended:
        bench = Bench()
        disk = bench.disk.beside(cut_after=step)
        lines.clear()
        tables = lambda environment, disk, clock: Table(lines, disk)  # noqa: E731
        monkeypatch.setattr("perdure.control.supervisor.Crontab", tables)
        supervisor = Supervisor(W, world=bench.world._replace(disk=disk), config=TERMINAL)
        with suppress(Killed):
            supervisor.schedule(300.0)
            assert lines
        ended, step = not disk.is_dead, step + 1
        left = disk.survive_kill()
        known = SupervisionStore(left, W).load("T").file.schedule
        assert known is not None or not lines
        again = Supervisor(W, world=next_world(bench.world, left), config=TERMINAL)
        there = bool(lines)
        assert again.unschedule() is there
        assert SupervisionStore(left, W).load("T").file.schedule is None
        assert not lines
    assert step > 3


def test_a_disk_that_is_full_is_an_error_and_sends_nothing(bench: Bench) -> None:
    bench.finish("N1", "a.txt")
    bench.disk.fail(lambda op: "supervision.json" in op.path and op.kind == "write", 28, times=None)
    report = bench.apply()
    assert report["error"]["code"] == "disk_full"
    assert bench.emitted == []
    bench.disk.heal()
    assert len(bench.apply()["delivered"]) == 1


def test_a_recovery_that_clears_temporary_files_does_not_disturb(bench: Bench) -> None:
    bench.disk.fail(lambda op: "supervision.json" in op.path and op.kind == "rename", 2)
    assert bench.apply(40)["applied"]
    assert bench.file().memory.nudges == 1
