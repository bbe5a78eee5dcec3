"""Queries and commands on one task.

Job: put workspace, runtime, run loop and drop box together, so that interfaces only parse, call and
render. Invariants: queries never write; a write goes the direct way while nobody coordinates and
through the drop box while somebody does, with the same effect; every answer is JSON-like data.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from perdure.core import views
from perdure.core.events import Event
from perdure.core.health import health_view
from perdure.core.late import LateModule
from perdure.core.lookup import complete, question_of
from perdure.core.machine import open_nodes, unreplaced
from perdure.core.model import State
from perdure.core.people import ANSWERS
from perdure.core.policies import policy_table
from perdure.errors import (
    BusyError,
    HaltError,
    LeaseHeldError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from perdure.runtime import calls
from perdure.runtime.engine import Engine
from perdure.runtime.eventlog import EventLog, tail_events
from perdure.runtime.integrity import failures, integrity_walk
from perdure.runtime.masking import mask_message, masker_of
from perdure.runtime.world import World, real_world
from perdure.storage import spool
from perdure.storage.workspace import find_project, find_workspace, is_workspace, set_current

Data = dict[str, Any]

# Most calls are a note, a beat or a look at the status, and need none of these.
_node_views: Final = LateModule("perdure.core.node_views")
_halt: Final = LateModule("perdure.runtime.halt")
_recover: Final = LateModule("perdure.runtime.recover")
_inspection: Final = LateModule("perdure.runtime.inspection")
_docs: Final = LateModule("perdure.runtime.docs")
_enforced: Final = LateModule("perdure.control.enforced")
_batches: Final = LateModule("perdure.service.batches")
_inbox: Final = LateModule("perdure.core.inbox")
_inboxes: Final = LateModule("perdure.service.inbox")
_instance_tree: Final = LateModule("perdure.service.instance_tree")
_audits: Final = LateModule("perdure.service.audits")
_task_audits: Final = LateModule("perdure.runtime.calls_on_task_audits")

answer_wait_s: Final = 2.0
"""How long a command waits for the coordinator's answer to what it dropped."""
follow_interval_s: Final = 0.2


def locate(directory: str | None, start_dir: str, environ: Mapping[str, str]) -> str:
    """The workspace a command means: ``-C``, else PERDURE_WORKSPACE, else upward from here."""
    if directory is not None:
        return os.path.abspath(os.path.join(start_dir, directory))
    world = real_world()
    return find_workspace(world.disk, start_dir, environ.get("PERDURE_WORKSPACE"))


def init_task(
    directory: str | None,
    start_dir: str,
    task_id: str,
    *,
    goal: str = "",
    tier: int = 1,
    actor: str = "coordinator:main",
) -> Data:
    """Create a task and make it the current one of its project. Refused where one exists."""
    world = real_world()
    project = None
    if directory is not None:
        workspace = os.path.abspath(os.path.join(start_dir, directory))
    else:
        project = find_project(world.disk, start_dir) or os.path.join(start_dir, ".perdure")
        workspace = os.path.join(project, "tasks", task_id)
    if is_workspace(world.disk, workspace):
        raise RefusedError(
            f"{workspace} holds a task already.",
            code="task_exists",
            rule="D2",
            fix="Go on with it (`perdure status`), or choose another task id or directory.",
        )
    runtime = _halt.HaltRuntime(workspace, task_id, goal=goal, tier=tier, actor=actor, world=world)
    runtime.close()
    if project is not None:
        set_current(world.disk, project, task_id)
    return {"task_id": task_id, "workspace": workspace, "committed": "J-1"}


class Service:
    """One workspace, as one caller sees it. Opened anew by each call; holds nothing open."""

    def __init__(self, workspace: str, *, actor: str, world: World | None = None) -> None:
        self.workspace = workspace
        self.actor = actor
        self.world = world or real_world()

    def _reader(self) -> Engine:
        engine = Engine(self.workspace, self.world, self.actor)
        engine.load()
        return engine

    # Queries

    def status(self, *, limit: int = 1_000) -> Data:
        """Where the task stands. ``nodes`` is cut at ``limit``; ``counts`` never is.

        Of batch nodes at work ``running`` says how many of their ``units`` are done; ``unread``
        says what people have said that nothing has acted on yet.
        """
        engine = self._reader()
        data = views.status(engine.replica, limit=limit)
        for item in data["running"]:
            node = engine.replica.state.nodes.get(item["node"])
            if node is not None and node.spec.map is not None:
                item["units"] = _batches.units_of(engine, node)
        data |= _of_instances(engine)
        data["asked"] = views.open_questions(engine.replica, self.world.clock.now(), limit=limit)
        data["unread"] = _inboxes.unread(engine)
        if engine.replica.state.docs:
            data["stale_docs"] = _docs.stale_docs(engine)
        data["integrity"] = failures(integrity_walk(engine, quick=True))
        data["all_integrity_pass"] = not data["integrity"]
        data["workspace"] = self.workspace
        standing, lease = engine.lease_file.standing()
        data["coordinator"] = None
        if lease is not None and standing in ("held", "ours"):
            data["coordinator"] = {"holder": lease.holder, "pid": lease.pid, "epoch": lease.epoch}
        data["interrupted"] = _interrupted(engine.replica.state, standing)
        return data

    def ready(self, *, limit: int = 20, after: str | None = None) -> Data:
        """The frontier, best first, a page at a time."""
        return views.ready(self._reader().replica, limit=limit, after=after)

    def next(self) -> Data:
        """The one thing to do next, with what doing it takes."""
        engine = self._reader()
        data: Data = _node_views.next_step(engine.replica)
        if engine.replica.state.docs:
            data["stale_docs"] = _docs.stale_docs(engine)
        if data["node"] is None:
            standing = engine.lease_file.standing()[0]
            data["interrupted"] = _interrupted(engine.replica.state, standing)
        return data

    def show(self, ref: str) -> Data:
        """A node, an artifact, a question or an event, by id or unique prefix; ``INSTANCE#ID`` is
        of an instance below."""
        if "#" in ref:
            return self._show_below(ref)
        engine = self._reader()
        state = engine.replica.state
        if ref.startswith("J-") and ref[2:].isdecimal():
            number = int(ref[2:])
            log = EventLog(self.world.disk, engine.layout.journal, state.seq)
            if not 1 <= number <= state.seq:
                raise NotFoundError(
                    f"there is no event {ref}; the last is J-{state.seq}.",
                    code="unknown_event",
                    fix="`perdure log` lists the last ones.",
                )
            event = log[number - 1]
            shown = {"type": "event", **event_data(event)}
            if event.payload.get("op") == "task_audit" and event.kind == "NOTE":
                shown["corrected_by"] = _task_audits.correction_of(log, event)
            return shown
        names = [
            *state.nodes, *state.artifacts, *state.questions, *state.contracts, *state.slots,
            *state.steering, *state.closed_questions,
        ]  # fmt: skip
        name = complete(ref, names, "record")
        logged = _logged(state, name)
        if logged:
            return {"type": logged[0], **logged[1], "said": self.show(logged[2])["payload"]}
        data: Data = _node_views.show(engine.replica, name)
        node = state.nodes.get(name)
        if node is not None and node.spec.map is not None:
            data["units"] = _batches.units_of(engine, node)
        return data

    def _show_below(self, ref: str) -> Data:
        """What a qualified reference names, of an instance anywhere below (NS-2)."""
        instance, _, name = ref.partition("#")
        directory: str = _instance_tree.instance_named(self._reader(), instance)
        return Service(directory, actor=self.actor, world=self.world).show(name)

    def inbox(
        self,
        *,
        limit: int = 10,
        after: str | None = None,
        before: str | None = None,
        whole: bool = False,
    ) -> Data:
        """Open questions and instructions with their stages, a page at a time, and what lies in
        the drop box and in the supervisor's file for the owner. Changes nothing."""
        data: Data = _inboxes.read_inbox(
            self._reader(), limit=limit, after=after, before=before, whole=whole
        )
        return data

    def audit_brief(self, node: str) -> Data:
        """What an auditor from outside needs in order to judge a node (V2). Changes nothing."""
        data: Data = _audits.audit_brief(self._reader(), node)
        return data

    def policies(self) -> Data:
        """Every reference policy: value, reason, and the window that it was measured in."""
        return {"policies": policy_table(self._reader().replica.state)}

    def dispatch(self) -> Data:
        """How work is dispatched: the mode, and what it was measured on."""
        return {"dispatch": health_view(self._reader().replica.state)}

    def asked_role(self, typed: str) -> str:
        """The role that a question is put to; that of a gatekeeper when it is not open."""
        try:
            return question_of(self._reader().replica.state, typed).to
        except (RefusedError, UsageError, NotFoundError):
            return ANSWERS

    def log(self, *, after: int | None = None, limit: int = 50) -> Data:
        """Events after a sequence number, or the last ones; ``next`` is where to go on."""
        engine = self._reader()
        path, last = engine.layout.journal, engine.replica.state.seq
        if after is None:
            events = tail_events(self.world.disk, path, engine.journal.tip, limit)
        else:
            events = EventLog(self.world.disk, path, last)[after : after + limit]
        end = events[-1].seq if events else last
        return {
            "events": [event_data(event) for event in events],
            "next": end if end < last else None,
            "seq_last": last,
        }

    def follow(self, *, after: int | None = None) -> Iterator[Data]:
        """Events as they are committed, for ever."""
        engine = self._reader()
        seen = engine.replica.state.seq
        if after is not None:
            for event in EventLog(self.world.disk, engine.layout.journal, seen):
                if event.seq > after:
                    yield event_data(event)
        while True:
            fresh: list[Event] = []
            engine.watch(fresh.extend)
            for event in fresh:
                yield event_data(event)
            if not fresh:
                self.world.clock.sleep(follow_interval_s)

    def verify(self) -> Data:
        """Replay and check everything; ``exit_code`` says how bad it is."""
        engine = Engine(self.workspace, self.world, self.actor)
        self._require()
        data: Data = msgspec.to_builtins(_inspection.verify_workspace(engine))
        data["workspace"] = self.workspace
        return data

    def doctor(self) -> Data:
        """What is wrong with the workspace and how to put it right; changes nothing."""
        self._require()
        data: Data = _inspection.diagnose(Engine(self.workspace, self.world, self.actor))
        try:
            data["enforcement"] = _enforced.enforcement_report(self._reader())
        except HaltError:  # a finding already
            data["enforcement"] = None
        return data

    def _require(self) -> None:
        if not is_workspace(self.world.disk, self.workspace):
            Engine(self.workspace, self.world, self.actor).load()

    # Commands

    def call(self, name: str, args: Mapping[str, Any], *, op: str | None = None) -> Data:
        """Carry out a writing call, directly or through the drop box of the coordinator.

        The answer has ``committed``; or ``queued: true`` when the coordinator has not answered
        within ``answer_wait_s``: the message is durable and will be carried out once. So it is when
        the coordinator keeps the writer lock for long.
        """
        engine = self._reader()
        try:
            return calls.perform(engine, name, args, op=op)
        except BusyError as error:
            held = isinstance(error, LeaseHeldError) or engine.lease_file.standing()[0] == "held"
            if not held or not calls.CALLS[name].spoolable:
                raise
            return self._drop(engine, name, args, op)
        finally:
            engine.close()

    def _drop(self, engine: Engine, name: str, args: Mapping[str, Any], op: str | None) -> Data:
        clock, disk, layout = self.world.clock, self.world.disk, engine.layout
        message_id = op or f"op-{int(clock.now() * 1000)}-{self.world.ids.token()}"
        said = mask_message(masker_of(engine), name, args)
        spool.drop(disk, layout, spool.Message(message_id, name, said, self.actor, clock.now()))
        give_up_at = clock.monotonic() + answer_wait_s
        while clock.monotonic() < give_up_at:
            result = spool.take_result(disk, layout, message_id)
            if result is not None:
                return _unpack(result)
            clock.sleep(0.02)
        masked = {"masked": said["masked"]} if "masked" in said else {}
        return {"committed": None, "queued": True, "id": message_id, **masked}

    def resume(self) -> Data:
        """Take over and recover. ``exit_code`` 0: consistent and something may run; 1: files are
        not what was registered; 10: a person is needed; 11: the task is finished."""
        runtime = _halt.HaltRuntime.resume(self.workspace, actor=self.actor, world=self.world)
        try:
            data: Data = _recover.summary(runtime.engine, runtime.recovered)
            state = runtime.state
            finished = bool(state.nodes) and not open_nodes(state) and not unreplaced(state)
            data["fsm_task"] = state.fsm_task
            data["questions"] = {q.question_id: q.text for q in state.questions.values()}
        finally:
            runtime.close()
        if data["suspects"]:
            code = 1
        elif data["frontier"]:
            code = 0
        else:
            code = 11 if finished else 10
        data["exit_code"] = code
        return data


def _interrupted(state: State, standing: str) -> list[str]:
    """The nodes whose coordinator is gone while they were at work; recovery takes them back."""
    if standing in ("held", "ours"):
        return []
    held = state.contracts.values()
    return [item.node for item in held if item.executor.kind == "process"][: views.items_max]


def _of_instances(engine: Engine) -> Data:
    """The instances below, and what this task is an instance of; nothing for most tasks."""
    state = engine.replica.state
    found: Data = {}
    if state.sop:
        found["instance"] = {"sop": state.sop, "phase": state.phase, "parent": state.parent}
        found = msgspec.to_builtins(found)
    if any(node.child_ref for node in state.nodes.values()):
        found["instances"] = _instance_tree.tree_of(engine)
    return found


def _logged(state: State, name: str) -> tuple[str, Data, str] | None:
    """Of an instruction or a settled question: what it is, how far it came, and its event.

    What is there now comes before what was: a gate may have been named as its node is.
    """
    if name in state.nodes or name in state.artifacts or name in state.questions:
        return None
    if name in state.steering:
        return "steering", _inbox.stages(name, state.steering[name]), state.steering[name].ref
    if name in state.closed_questions:
        return "settled question", {"id": name}, state.closed_questions[name]
    return None


def _unpack(result: Data) -> Data:
    if "data" in result:
        data: Data = result["data"]
        return data
    error = result.get("error") or {}
    kind = {2: "usage", 3: "not found"}.get(int(result.get("exit_code") or 4), "refused")
    failure = HaltError(
        str(error.get("message") or f"the coordinator answered: {kind}"),
        code=str(error.get("code") or "refused"),
        rule=str(error.get("rule") or ""),
        fix=str(error.get("fix") or ""),
        suggestions=error.get("suggestions") or (),
    )
    failure.exit_code = int(result.get("exit_code") or 4)
    raise failure


def event_data(event: Event) -> Data:
    """An event as its journal line says it."""
    data: Data = msgspec.to_builtins(event)
    return {"ref": event.ref, **data}
