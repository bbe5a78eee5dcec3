"""The outputs of a child, copied to where its parent can register and verify them (NC-2).

Job: put each listed output, and the result itself, into the scope of the parent's node. Invariants:
what was copied is what the child had registered, by its hash; a copy is durable before it has its
name; a name that two outputs share is told apart by the name of the output. Never registers
anything, and never changes the child.
"""

import posixpath
from collections.abc import Mapping

from perdure.core import instance as i
from perdure.core.model import Node
from perdure.errors import EvidenceError
from perdure.ports import Disk
from perdure.runtime.copies import copy_file
from perdure.runtime.engine import Engine
from perdure.runtime.instance_files import result_name
from perdure.runtime.probe import hash_file


def copy_outputs(
    engine: Engine, node: Node, result: i.Result, directory: str, names: Mapping[str, str]
) -> None:
    """Copy them, durably, to their ``names``; what is there already with the same bytes stays.

    Repeatable: a crash in the middle leaves whole copies and scratch below ``tmp/``. Raises
    EvidenceError where an output is no longer what the result says, StorageError.
    """
    scope = engine.layout.node_scope(node.node_id)
    scratch = f"{engine.layout.tmp}/copy-{result.invocation_id}"
    for listed in result.artifacts:
        if listed.name not in names:
            raise _unproven(f"{listed.name} is no output of its card")
        target = f"{scope}/{names[listed.name]}"
        if _is_copied(engine.disk, target, listed.checksum_sha256):
            continue
        source = f"{directory}/{listed.path}"
        engine.disk.make_dirs(engine.layout.tmp)
        value, _ = copy_file(engine.disk, engine.disk.real_path(source), scratch)
        if value != listed.checksum_sha256:
            engine.disk.unlink(scratch, durable=False)
            raise _unproven(f"{listed.path} of the instance changed while it was copied")
        engine.disk.make_dirs(posixpath.dirname(target))
        engine.disk.rename(scratch, target)
    data = engine.disk.read(f"{directory}/{result_name}")
    engine.disk.make_dirs(scope)
    engine.disk.replace(f"{scope}/{result_name}", data, durable=True)


def output_names(outputs: Mapping[str, str]) -> dict[str, str]:
    """Each output of a card, by its name, to the path below the scope of the caller's node.

    That is the last part of its path in the instance; where several outputs share that, or it is
    the name of the result, the name of the output stands in front.
    """
    last = {name: posixpath.basename(path) for name, path in outputs.items()}
    taken = [*last.values(), result_name]
    return {
        name: base if taken.count(base) == 1 else f"{name}/{base}" for name, base in last.items()
    }


def _unproven(why: str) -> EvidenceError:
    return EvidenceError(
        f"{why}.", code="child_unregistered", rule="IO-2", fix="Let the node run again."
    )


def _is_copied(disk: Disk, target: str, sha256: str) -> bool:
    stat = disk.stat(target)
    return stat is not None and stat.kind == "file" and hash_file(disk, target)[0] == sha256
