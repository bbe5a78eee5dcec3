"""The audit of a whole task, for the interfaces.

Job: bring together what the runtime can audit and what only the layers above it can look up: the
jobs of batch nodes, nested tasks, the memory store. Invariants: auditing writes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from perdure.core.lookup import near
from perdure.core.task_audit import AuditRecord, ItemFactory
from perdure.core.task_audit_items import GROUPS, ITEMS
from perdure.core.task_audit_record import record_markdown
from perdure.errors import HaltError, NotFoundError, UsageError
from perdure.jobs.inspection import verify_job
from perdure.memory.check import check_memory
from perdure.ports import Disk
from perdure.runtime.engine import Engine
from perdure.runtime.instance_files import directory_of, read_result
from perdure.runtime.task_audits import Audited, Extras, audit_task
from perdure.service.tasks import Service
from perdure.storage.workspace import find_project

Data = dict[str, Any]

_OVER: Final = ("FINAL_AUDIT", "ARCHIVED")


def audit(engine: Engine, *, items: Sequence[str] = (), upto: int | None = None) -> Audited:
    """Audit the task of a workspace, whole or some items of it; ``engine`` need not be loaded.

    Raises NotFoundError for a workspace or an item that does not exist.
    """
    return audit_task(engine, items=chosen(items), upto=upto, extras=extras_of(engine))


def chosen(names: Sequence[str]) -> tuple[ItemFactory, ...]:
    """The items of these ids, or of these groups, such as ``A2``; all of them without any."""
    if not names:
        return ITEMS
    known = {item.id: item for item in map(_id_of, ITEMS)}
    found: dict[str, ItemFactory] = {}
    for name in names:
        wanted = name.upper()
        matches = [key for key in known if key == wanted or key.startswith(f"{wanted}.")]
        if not matches:
            raise NotFoundError(
                f"the audit has no item {name!r}.",
                code="unknown_item",
                rule="A-4",
                fix="Name one such as A2.1, or a group such as A2; `perdure audit` lists them.",
                suggestions=near(wanted, (*known, *GROUPS)),
            )
        found |= {key: known[key].factory for key in matches}
    return tuple(found.values())


class _Named(msgspec.Struct, frozen=True):
    id: str
    factory: Any


def _id_of(factory: ItemFactory) -> _Named:
    return _Named(factory().id, factory)


def extras_of(engine: Engine) -> Extras:
    """What the layers above the runtime look up for an audit."""
    return Extras(
        ledger=lambda scope: _ledger(engine.disk, scope),
        instance=_instance_reader(engine),
        memory=_memory_of(engine),
    )


def _ledger(disk: Disk, scope: str) -> Data:
    """What the findings of a batch node say of its units; empty where there are none yet."""
    try:
        report = verify_job(disk, scope)
    except NotFoundError:
        return {}
    except HaltError as error:
        return {"done": 0, "failed": 0, "repeated": 0, "problem": error.message}
    repeated = report.counts["duplicated"]
    defects = [defect for defect in report.defects if defect.what != "duplicate"]
    return {
        "done": report.counts["items"],
        "failed": report.counts["errors"],
        "repeated": repeated,
        "problem": defects[0].message if defects else "",
    }


def _instance_reader(engine: Engine) -> Callable[[str], Data | None]:
    def read(instance: str) -> Data | None:
        directory = directory_of(engine.layout.root, instance)
        child = Engine(directory, engine.world, engine.actor)
        try:
            child.load()
            result = read_result(engine.disk, directory)
        except NotFoundError:
            return None
        except HaltError as error:
            return {"fsm_task": "", "terminal": False, "result": "", "problem": error.message}
        state = child.replica.state
        return {
            "fsm_task": state.fsm_task,
            "terminal": state.terminal or state.fsm_task in _OVER,
            "result": result.status if result is not None else "",
        }

    return read


def _memory_of(engine: Engine) -> Data | None:
    """The memory store of the project that the workspace lies in; None where there is none."""
    project = find_project(engine.disk, engine.layout.root)
    directory = f"{project}/memory" if project is not None else ""
    if not directory or not engine.disk.list_dir(directory):
        return None
    try:
        return check_memory(engine.disk, engine.world.clock.now(), directory)
    except HaltError as error:
        return {"problems": [error.message], "index": "missing", "due": [], "imperative": []}


def audit_answer(service: Service, *, items: Sequence[str] = ()) -> Data:
    """Audit the whole task; ``record`` is what can be recomputed, ``markdown`` the same as a page,
    ``cannot`` what could not be audited. ``exit_code`` 0: nothing failed; 1: something did; 6: the
    journal is damaged. Changes nothing."""
    audited = audit(Engine(service.workspace, service.world, service.actor), items=items)
    cannot = []
    if audited.damage:
        cannot = [f"what follows J-{audited.record.seq} in the journal: {audited.damage}"]
    return {
        "record": msgspec.to_builtins(audited.record),
        "markdown": record_markdown(audited.record, GROUPS),
        "cannot": cannot,
        "exit_code": 6 if audited.damage else 0 if audited.record.passed else 1,
    }


def record_in(data: Any) -> Data:
    """The record in what somebody hands over: bare, or as ``perdure audit --json`` prints it."""
    found = data
    for key in ("data", "record"):
        if isinstance(found, dict) and key in found and "items" not in found:
            found = found[key]
    if not isinstance(found, dict):
        raise UsageError(
            "this is no record of a task audit.",
            code="not_a_record",
            rule="A-4",
            fix="Take what `perdure audit --json` prints.",
        )
    fields = AuditRecord.__struct_fields__
    return {name: value for name, value in found.items() if name in fields}
