"""The program ``python_runner.py CONTRACT TASK_DIR``, which calls one Python function.

Job: import what the contract names, call it with the arguments of the contract, print what it
returns as JSON and leave that in ``result.json`` of the scope. Invariants: it imports nothing but
the standard library and what it is told to; exit code 0 means that the function has returned, 127
that there is no such module, file or function, and 1 that it raised, with the traceback on standard
error; ``result.json`` is there whole or not at all, and one that the function wrote itself stays.
"""

import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

NO_FUNCTION = 127


def main(arguments: list[str]) -> int:
    """Carry out the contract; returns the exit code."""
    contract_path, task_dir = arguments
    with open(contract_path, encoding="utf-8") as file:
        call = json.load(file)["python"]
    # Instead of the directory of this program, whose modules are no business of the function.
    sys.path[0] = task_dir
    sys.argv = [call["call"]]
    function = _find(call["call"], task_dir)
    if function is None:
        return NO_FUNCTION
    result = function(**call.get("args", {}))
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    if result is not None:
        sys.stdout.write(text + "\n")
        _keep(text)
    return 0


def _find(call: str, task_dir: str) -> "Callable[..., Any] | None":
    """The function; None, with the reason on standard error, when there is none."""
    where, _, name = call.rpartition(":")
    try:
        found: Any = _load(where, task_dir)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != where.partition(".")[0]:
            traceback.print_exc()  # it is there, and what it needs is not
        sys.stderr.write(f"{call}: there is no module {error.name or where}: {error}\n")
        return None
    except OSError as error:
        sys.stderr.write(f"{call}: {where} cannot be read: {error}\n")
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        sys.stderr.write(f"{call}: {where} has no function {name}\n")
        return None
    function: Callable[..., Any] = found
    return function


def _load(where: str, task_dir: str) -> Any:
    """The module; a file is relative to the task file, and its neighbours can be imported."""
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = os.path.join(task_dir, where)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file", name=name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import does, so that it can be found by what it makes
    spec.loader.exec_module(module)
    return module


def _keep(text: str) -> None:
    """Leave the result in the scope. A crash leaves the temporary file, which nobody reads."""
    scope = os.environ.get("PERDURE_SCOPE", "")
    path = os.path.join(scope, "result.json")
    if not scope or os.path.exists(path):
        return
    temporary = os.path.join(scope, f".result.json.tmp-{os.getpid()}-0")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    data = (text + "\n").encode()
    try:
        while data:
            data = data[os.write(descriptor, data) :]  # noqa: TID251  (as below)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)  # noqa: TID251  (in the child; whoever registers it makes it durable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
