"""The executor of a Python function: called in a process of its own.

Job: launch ``python_runner.py`` with the contract, which names the function and its arguments.
Invariants: nothing of the function is imported here, so that what it does at import cannot harm the
coordinator; what it returns is a claim like any other. Never commits.
"""

import os
import sys

from perdure.control import python_runner
from perdure.control.executor_port import Launch, Order, Report, report_of_exit
from perdure.control.outcome import Ended
from perdure.core.model import Node
from perdure.errors import NotFoundError


class PythonExecutor:
    """Calls ``spec.python`` with the interpreter that runs perdure."""

    kind: str = "python"
    wall_s: float | None = None

    def require_installed(self, node: Node, order_directory: str) -> None:
        """A function in a file needs that file beside the task file; a module is only imported by
        the child."""
        call = node.spec.python
        where = call.call.rpartition(":")[0] if call is not None else ""
        if not where.endswith(".py"):
            return
        path = os.path.join(order_directory, where)
        if not os.path.isfile(path):
            raise NotFoundError(
                f"{node.node_id} calls a function in {where}, and there is no file {path}.",
                code="executor_missing",
                rule="FR-1",
                fix="Put the file there; its path is relative to the task file.",
            )

    def launch(self, order: Order) -> Launch:
        """The runner, with the contract; where the function is found is relative to the task."""
        return Launch((sys.executable, python_runner.__file__, order.contract, order.task_dir))

    def read_end(self, order: Order, ended: Ended) -> Report:
        """Exit code 0 is a claim: the function has returned."""
        return report_of_exit(ended)
