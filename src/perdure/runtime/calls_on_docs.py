"""Calls about the documents of a task.

Job: one function for each call of the table in ``calls``, by the same name. Invariants: an answer
names the event that acknowledges it; a refusal has written nothing.
"""

from perdure.runtime.answers import Answer, Args, answer
from perdure.runtime.docs import look
from perdure.runtime.engine import Engine


def doc(engine: Engine, args: Args, op: str | None) -> Answer:
    """Note a document worth keeping, or an outside file that work rests on, as it is now."""
    path, purpose = str(args["path"]), str(args.get("purpose") or "")
    command = look(engine, path, purpose, str(args.get("directory") or engine.layout.root))
    committed = engine.execute(command, op=op)
    return answer(committed, path=command.path, external=command.external)
