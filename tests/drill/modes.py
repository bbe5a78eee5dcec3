"""What the modes of dispatch have to be, worked out from the journal a second time.

A small model of HALT-07 section 4 that shares nothing with perdure: it reads the lines of a journal
and says which mode follows from each resolution.
"""

from collections.abc import Iterable, Mapping
from typing import Any

window_slots = 8
mixed_threshold = 0.25
halt_after = 2
DEATHS = ("killed", "timed_out", "silent", "failed")


class Modes:
    """The mode that the resolutions so far ask for."""

    def __init__(self) -> None:
        self.mode = "A"
        self.window: list[bool] = []
        self.environment = 0
        self.entered: list[str] = []
        self.faults: list[str] = []

    def read(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take the events in and note where the journal says another mode than follows."""
        wanted = self.mode
        for event in events:
            payload = event["payload"]
            if payload.get("op") == "slot_closed":
                self._resolve(payload)
                wanted = self._wanted()
            elif payload.get("op") == "slot" and self.mode != wanted:
                self.faults.append(f"J-{event['seq']}: sent in mode {self.mode}, not in {wanted}")
            elif payload.get("op") == "mode":
                self._enter(event["seq"], payload, wanted)
                wanted = self.mode

    def _resolve(self, payload: Mapping[str, Any]) -> None:
        end = payload["end"]
        if end not in DEATHS and end != "landed":
            return
        died_first = end in DEATHS and bool(payload.get("first"))
        self.window = [*self.window, died_first][-window_slots:]
        of_environment = end in DEATHS and bool(payload.get("cause"))
        self.environment = self.environment + 1 if of_environment else 0

    def _wanted(self) -> str:
        if self.mode == "C":
            return "C"
        if self.environment >= halt_after:
            return "C"
        return "B" if sum(self.window) / window_slots > mixed_threshold else "A"

    def _enter(self, seq: int, payload: Mapping[str, Any], wanted: str) -> None:
        mode = payload["mode"]
        left_by_probe = self.mode == "C" and mode != "C"
        if mode not in (wanted, self.mode) and not left_by_probe:
            self.faults.append(f"J-{seq}: mode {mode}, where {wanted} follows")
        if mode != self.mode:
            self.entered.append(mode)
        if left_by_probe:
            self.environment = 0
        if payload.get("probing"):
            self.environment = 0
        if payload.get("clear_window"):
            self.window = []
        self.mode = mode
