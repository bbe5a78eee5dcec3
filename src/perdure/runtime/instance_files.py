"""The documents of an instance on disk: its invocation and its result.

Job: where an instance lies, and writing, reading and checking its two documents. Invariants: an
invocation is written once; a result is the last thing that an end writes, whole or not at all, and
one that the journal of the instance does not bear out proves nothing (IO-2). Never commits.
"""

from typing import Final

import msgspec

from perdure.core import instance as i
from perdure.core.codec import to_json
from perdure.core.dispatching import Usage
from perdure.core.model import State
from perdure.errors import EvidenceError, HaltError, NotFoundError, StorageError, UsageError
from perdure.ports import Disk
from perdure.runtime.engine import Engine
from perdure.runtime.probe import hash_file
from perdure.runtime.world import World

invocation_name: Final = "invocation.json"
result_name: Final = "result.json"


def directory_of(root: str, instance: str) -> str:
    """Where an instance of a node of the task in ``root`` lies; it need not exist."""
    return f"{root}/{i.path_of(instance)}"


def is_there(disk: Disk, directory: str) -> bool:
    """Whether an instance has been called there, begun or not."""
    try:
        return disk.stat(f"{directory}/{invocation_name}") is not None
    except StorageError:
        return False


def read_invocation(disk: Disk, directory: str) -> i.Invocation:
    """What an instance was called with. NotFoundError (``no_instance``), UsageError."""
    path = f"{directory}/{invocation_name}"
    if disk.stat(path) is None:
        raise NotFoundError(
            f"{directory} holds no instance: it has no {invocation_name}.",
            code="no_instance",
            rule="SC-3",
            fix="Run a card with `perdure sop run`, or a task file with a node that names one.",
        )
    try:
        return msgspec.json.decode(disk.read(path, 0, i.document_bytes_max), type=i.Invocation)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(
            f"{path} is no invocation: {error}.",
            code="bad_invocation",
            rule="SC-3",
            fix="Put the file back from a copy; it is never changed once written.",
        ) from None


def write_result(engine: Engine, result: i.Result) -> None:
    """Put the document in place, durably: the last step of an end. A crash leaves it or not."""
    path = f"{engine.layout.root}/{result_name}"
    engine.disk.replace(path, to_json(result) + b"\n", durable=True)


def remove_result(engine: Engine) -> None:
    """Take the document of an earlier end away, durably: the instance is at work again."""
    engine.disk.unlink(f"{engine.layout.root}/{result_name}", durable=True)


def read_result(disk: Disk, directory: str) -> i.Result | None:
    """The document of an instance; None where there is none.

    Raises EvidenceError (``bad_result``) for one that cannot be read.
    """
    path = f"{directory}/{result_name}"
    stat = disk.stat(path)
    if stat is None:
        return None
    try:
        if stat.kind != "file" or stat.size_bytes > i.document_bytes_max:
            raise ValueError(f"it is a {stat.kind} of {stat.size_bytes} bytes")
        result = msgspec.json.decode(disk.read(path), type=i.Result)
        if i.read_status(result.status) is None:
            raise ValueError(f"{result.status!r} is no status")
        return result
    except (msgspec.MsgspecError, ValueError, RecursionError, StorageError) as error:
        raise EvidenceError(
            f"the result of the instance cannot be read: {error}.",
            code="bad_result",
            rule="IO-2",
            fix="Let the instance report again: perdure run, with the task file of its parent.",
        ) from None


def check_result(result: i.Result, directory: str, world: World) -> None:
    """Raise EvidenceError (``child_unregistered``) unless its journal and the disk bear it out.

    Every artifact in it is registered there, current, of a node that is DONE, and on disk with the
    checksum that both say (IO-2); what it waits for is what its journal asks (QA-1); nothing that
    it speaks of is still to come. Reads only.
    """
    child = Engine(directory, world, "verifier:parent")
    try:
        child.load()
    except HaltError as error:
        raise _unproven(result, f"its journal cannot be read ({error.code})") from error
    state = child.replica.state
    if state.task_id != result.invocation_id or result.seq_last > state.seq:
        raise _unproven(result, "its journal does not know of it")
    status = i.read_status(result.status)
    if status is not None and status.word in (i.DONE, i.WITH_GAPS) and state.phase != i.REPORT:
        raise _unproven(result, f"its journal has it in phase {state.phase or 'none'}")
    if (result.sop.id, result.sop.version) != (state.sop.get("id"), state.sop.get("version")):
        raise _unproven(result, "its journal is of another procedure")
    _check_usage(result)
    _check_questions(result, state, blocked=status is not None and status.word == i.BLOCKED)
    for listed in result.artifacts:
        held = state.artifacts.get(listed.artifact_id)
        if held is None or held.path != listed.path:
            raise _unproven(result, f"{listed.name} ({listed.path}) is not registered there")
        if held.status != "current" or held.integrity.value != listed.checksum_sha256:
            raise _unproven(result, f"{listed.name} is not what is registered there")
        maker = state.nodes.get(held.produced_by_node or "")
        if maker is None or maker.state != "DONE":
            raise _unproven(result, f"{listed.name} was not verified there")
        full = f"{directory}/{listed.path}"
        try:
            stat = world.disk.stat(world.disk.real_path(full))
            value = hash_file(world.disk, full)[0] if stat is not None else ""
        except StorageError as error:
            raise _unproven(result, f"{listed.path} cannot be read: {error.message}") from error
        if value != listed.checksum_sha256:
            what = "missing" if stat is None else "not what was registered"
            raise _unproven(result, f"{listed.path} is {what}")


def _check_usage(result: i.Result) -> None:
    """Nobody gives back what others have used: a budget is held by the sum."""
    used = result.usage or Usage()
    given = (used.wall_s, used.tool_calls, used.tokens, used.cost_usd)
    if any(amount is not None and not amount >= 0 for amount in given):
        raise _unproven(result, "it has used less than nothing")


def _check_questions(result: i.Result, state: State, *, blocked: bool) -> None:
    """What it waits for is asked in its own journal; a gap is at least one of its own (QA-1)."""
    if blocked and not result.open_questions:
        raise _unproven(result, "it asks nothing")
    for one in result.open_questions:
        instance, name = i.taken_apart(one.ref)
        asked = state.questions.get(name)
        theirs = instance == result.invocation_id and bool(one.text.strip())
        if blocked and asked is None:
            theirs = theirs and name in state.closed_questions  # answered there since
        elif blocked and asked is not None:
            theirs = theirs and (one.text, one.to) == (asked.text, asked.to)
        if not theirs:
            raise _unproven(result, f"its journal does not ask {one.ref[:80]!r} like that")


def _unproven(result: i.Result, why: str) -> EvidenceError:
    return EvidenceError(
        f"the instance reports {result.status}, but {why}.",
        code="child_unregistered",
        rule="IO-2",
        fix="Look into it: perdure -C instances/" + result.invocation_id + " status",
    )
