"""One instance of a procedure, from its invocation to its result.

Job: open the workspace of an instance, drive its graph through the phases of its card, and report.
Invariants: root and nested instances are the same thing (NC-1); an instance runs the copy of the
card that lies in it and no other (SC-3); a result is written last, and taken away before work goes
on; interrupted anywhere, the same call goes on at the last commit, in the phase that it belongs to.
It writes nothing outside its own directory (NS-1).
"""

import os
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.endings import Emit
from perdure.control.graph import align_graph, source_of
from perdure.control.handoff import handoff_page, note_path
from perdure.control.phases import PhaseWatch
from perdure.control.report import RunReport
from perdure.control.result import judge_instance
from perdure.control.result_summary import decisions_of, units_of
from perdure.control.run import RunLoop
from perdure.control.sop_card import Card
from perdure.control.sop_graph import InstancePlan, instance_plan, output_paths, write_inputs
from perdure.control.sop_library import FoundCard, install_card, installed_card
from perdure.core import instance as i
from perdure.core.asking import free_id
from perdure.core.budget import usage_of
from perdure.core.codec import to_json
from perdure.core.commands import AskQuestion
from perdure.core.model import State
from perdure.errors import RefusedError, UsageError
from perdure.ports import Disk
from perdure.runtime.halt import HaltRuntime
from perdure.runtime.instance_files import (
    invocation_name,
    read_invocation,
    remove_result,
    write_result,
)
from perdure.runtime.world import World

asked_by_hand_max: Final = 20


class Ending(NamedTuple):
    """How one run of an instance ended."""

    report: RunReport
    result: i.Result | None
    """None after a signal: it reports nothing, and goes on the next time."""


def write_invocation(
    disk: Disk, directory: str, invocation: i.Invocation, found: FoundCard
) -> None:
    """Make an instance that can be run: its card, then its invocation; both durable on return.

    A crash in between leaves no invocation, and the same call again makes it whole.
    """
    data = to_json(invocation) + b"\n"
    if len(data) > i.document_bytes_max:
        raise UsageError(
            f"the invocation has {len(data)} bytes; {i.document_bytes_max} is the most.",
            code="too_large",
            rule="IO-2",
            fix="Put long inputs into files and name those.",
        )
    disk.make_dirs(directory)
    install_card(found, disk=disk, workspace=directory)
    disk.replace(f"{directory}/{invocation_name}", data, durable=True)


class InstanceRun:
    """One instance, opened for work in this process."""

    def __init__(self, directory: str, *, actor: str, world: World, emit: Emit) -> None:
        """Open it: create its journal, or recover it. Raises HaltError; then nothing is held.

        Refused where the journal is of another card or version (SC-3).
        """
        self._emit = emit
        self.invocation = read_invocation(world.disk, directory)
        sop = self.invocation.sop
        found = installed_card(sop.id, sop.version, disk=world.disk, workspace=directory)
        if sop.sha256 and found.sha256 != sop.sha256:
            raise RefusedError(
                f"sops/{found.card.directory_name} of the instance is not what it was called as.",
                code="sop_changed",
                rule="SC-3",
                fix="Put the copy back; another version of a card is another instance.",
            )
        self.card: Card = found.card
        self.plan = self._planned(directory)
        self.runtime = self._opened(directory, actor, world)
        self._phases = PhaseWatch(self.runtime, self.card.phase_names, self.plan.phase_of, emit)

    def _planned(self, directory: str) -> InstancePlan:
        return instance_plan(
            self.card,
            self.invocation.inputs,
            task_id=self.invocation.invocation_id,
            workspace=directory,
        )

    def _opened(self, directory: str, actor: str, world: World) -> HaltRuntime:
        called, card, task = self.invocation, self.card, self.plan.task
        sop = {**msgspec.to_builtins(called.sop), "phases": list(card.phase_names)}
        runtime = HaltRuntime(
            directory,
            called.invocation_id,
            goal=task.goal or card.purpose or card.title,
            acceptance=task.acceptance,
            tier=called.tier,
            actor=actor,
            policies=called.policies,
            people=called.people,
            standing_authorities=called.standing_authorities,
            source=source_of(task, directory),
            delegation=called.delegation,
            parent=called.parent,
            sop=sop,
            world=world,
            take_over_sessions=False,
        )
        held = runtime.state.sop
        if (held.get("id"), held.get("version")) != (called.sop.id, called.sop.version):
            runtime.close()
            raise RefusedError(
                f"{directory} runs {held.get('id') or 'no procedure'} {held.get('version') or ''},"
                f" not {called.sop.id} {called.sop.version}.",
                code="sop_changed",
                rule="SC-3",
                fix="Name another directory for another procedure or version.",
            )
        return runtime

    def close(self) -> None:
        """Give the workspace back."""
        self.runtime.close()

    @property
    def state(self) -> State:
        """Where it stands."""
        return self.runtime.state

    def loop(self, *, jobs: int, wait: bool) -> RunLoop:
        """The run loop that drives it; for :meth:`drive`, and to be interrupted."""
        return RunLoop(self.runtime, jobs=jobs, emit=self._tell, wait=wait)

    def drive(self, loop: RunLoop) -> Ending:
        """Drive it until it is finished, stuck or interrupted, and report.

        The result of an earlier end is taken away first. A crash anywhere leaves what the same
        call goes on from.
        """
        engine = self.runtime.engine
        remove_result(engine)
        self._phases.begin()
        write_inputs(self.invocation.inputs, disk=engine.disk, workspace=engine.layout.root)
        change = align_graph(engine, self.plan.task)
        if change.added or change.amended:
            self._emit({"event": "graph", **msgspec.to_builtins(change)})
        self._phases.advance()
        report = loop.run(None)
        if report.outcome == "interrupted":
            return Ending(report, None)
        return Ending(report, self._conclude(report))

    def _tell(self, event: dict[str, Any]) -> None:
        self._emit(event)
        self._phases.see(event)

    # The end

    def _conclude(self, report: RunReport) -> i.Result:
        """Judge the end, move to the last phase where it is one, write what there is to tell."""
        self._ask_by_hand(report)
        state, engine = self.state, self.runtime.engine
        outputs = output_paths(self.card, self.invocation.inputs)
        proven = self._proven(outputs)
        verdict = judge_instance(state, report, self.card, outputs, proven)
        status = i.read_status(verdict.status)
        word = status.word if status is not None else ""
        if word in (i.DONE, i.WITH_GAPS):
            if verdict.given_up:  # as decompose_and_report says
                self.runtime.cancel(verdict.given_up, "the procedure ends with what there is")
            self._phases.report()
        elif word == i.FAILED and verdict.failure is not None:
            self._suspend(verdict.failure)
        note = ""
        if word != i.DONE:
            page = handoff_page(state, verdict)
            note = note_path
            engine.disk.make_dirs(f"{engine.layout.root}/{os.path.dirname(note)}")
            engine.disk.replace(f"{engine.layout.root}/{note}", page.encode(), durable=True)
        result = i.Result(
            invocation_id=state.task_id,
            status=verdict.status,
            sop=self.invocation.sop,
            artifacts=tuple(proven.values()) if word in (i.DONE, i.WITH_GAPS) else (),
            decisions=decisions_of(engine),
            state_summary=units_of(engine),
            open_questions=verdict.questions,
            next_action_hint=state.next_hint,
            handoff_note=note,
            usage=usage_of(state),
            failure=verdict.failure,
            seq_last=state.seq,
        )
        write_result(engine, result)
        self._emit({"event": "reported", "node": None, "state": result.status})
        return result

    def _proven(self, outputs: dict[str, str]) -> dict[str, i.ResultArtifact]:
        """The outputs that are registered, current and verified, by name (IO-2); else a gap."""
        state, paths = self.state, self.runtime.engine.replica.paths
        found = {}
        for name, path in outputs.items():
            held = state.artifacts.get(paths.get(path, ""))
            maker = state.nodes.get(held.produced_by_node or "") if held is not None else None
            if held is None or held.status != "current" or maker is None or maker.state != "DONE":
                continue
            value = held.integrity.value
            found[name] = i.ResultArtifact(name, paths[path], path, value)
        return found

    def _suspend(self, failure: i.Failure) -> None:
        """Leave the way it failed in its own journal; a task with open work is suspended (FE-1)."""
        text = f"{failure.signature} ({failure.failure_class}); route: {failure.route}"
        try:
            self.runtime.pause(text)
        except RefusedError:  # nothing to suspend: what is left is closed already
            self.runtime.note(f"cannot finish: {text}")

    def _ask_by_hand(self, report: RunReport) -> None:
        """A question for what waits for people without one: it is on record first (IO-3)."""
        texts = {}
        if report.outcome == "paused":
            texts["paused"] = "The instance was paused. Is it to go on?"
        asked = {question.node for question in self.state.questions.values()}
        for name in [n for n in report.waiting if n not in asked][:asked_by_hand_max]:
            node = self.state.nodes[name]
            if name in report.by_hand or node.state in ("RUNNING", "VERIFYING"):
                texts[f"hand-{name}"[:56]] = (
                    f"{node.title} ({name}) is {node.state} and waits for somebody to do it by hand"
                    " in this instance. Is it done?"
                )
        known = {question.text for question in self.state.questions.values()}
        for base, text in texts.items():
            if text not in known:
                question_id = free_id(self.state, base)
                self.runtime.engine.execute(AskQuestion(text, question_id))
