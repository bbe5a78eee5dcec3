"""What is wrong with a card: every problem with its place and a code of its own.

Invariants: a code never changes its meaning; what has no code of its own is ``sop_invalid``; the
list is shared with whoever reads a part of the card, so that one refusal names everything.
"""

from collections.abc import Mapping
from typing import Final

from perdure.control.taskfile_tree import Place, Problem, problems_text
from perdure.errors import CardError

RULES_OF: Final[Mapping[str, str]] = {
    "sop_invalid": "IN-1",
    "sop_bad_version": "SC-3",
    "sop_unmapped_failure": "FE-1",
    "sop_unknown_route": "FE-1",
    "sop_unknown_input": "IN-1",
    "sop_value_in_shell": "IN-1",
    "sop_value_misplaced": "IN-1",
    "sop_phases": "IN-1",
    "sop_effect": "SC-1",
    "sop_recursion": "AP-N4",
    "sop_output_unmade": "PD-J1",
    "sop_file_missing": "SC-3",
}
"""Code to the rule that it cites."""


class CardProblems:
    """The problems of one card."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: list[Problem] = []
        self.places: dict[str, Place] = {}
        """Where what is only judged later stands: ``node ID``, ``output NAME``."""
        self._codes: dict[Problem, str] = {}

    def add(self, code: str, place: Place, what: str, fix: str = "") -> None:
        """Note one problem; without a code it is one of form."""
        problem = Problem(place, what, fix)
        self.found.append(problem)
        if code:
            self._codes[problem] = code

    def codes_since(self, noted: int) -> frozenset[str]:
        """The codes of all problems but the first ``noted``; of one without a code, ``""``."""
        return frozenset(self._codes.get(problem, "") for problem in self.found[noted:])

    def refusal(self) -> CardError:
        """One error for all of them."""
        codes = {self._codes.get(problem, CardError.code) for problem in self.found}
        code = codes.pop() if len(codes) == 1 else CardError.code
        shown = [
            problem._replace(what=f"{problem.what} [{self._codes[problem]}]")
            if problem in self._codes
            else problem
            for problem in dict.fromkeys(self.found)
        ]
        count = "1 problem" if len(shown) == 1 else f"{len(shown)} problems"
        return CardError(
            f"{self.path} does not validate ({count}):\n{problems_text(self.path, shown)}",
            code=code,
            rule=RULES_OF.get(code, CardError.rule),
            fix="Correct the card; nothing was started.",
        )
