"""What the end of an item's command means: why it failed, or what its output is as a finding.

Job: turn how a command ended and what it printed into words and values. Invariants: the same
failure has the same words; output counts only whole, as UTF-8, and without the fields that a
finding has itself. Never: starts, stops or records anything.
"""

import signal
from typing import Any, Final

from perdure.control.item_list import decode_json
from perdure.control.outcome import Ended, seconds_text
from perdure.jobs.lines import RESERVED_KEYS
from perdure.ports import Disk

output_bytes_max: Final = 16 << 20
"""What a command may print for one item; larger results belong into its file (PERDURE_FILE)."""
error_line_chars_max: Final = 500
_error_tail_bytes: Final = 8 << 10


def problem_of(ended: Ended) -> str:
    """Why the command failed, the same words for the same failure; empty when it did not."""
    if ended.how == "not_started":
        return ended.reason
    if ended.how == "timed_out":
        return f"stopped at the time limit of {seconds_text(ended.limit_s or 0.0)}"
    if ended.signal is not None:
        return f"ended by signal {_signal_text(ended.signal)}"
    if ended.exit_code is None:
        return "its exit code is unknown"
    if ended.exit_code != 0:
        return f"exit {ended.exit_code}"
    if ended.cut:
        named = ", ".join(name for _, name in ended.leftovers)
        return f"its output is not whole: what it left running ({named}) was still adding to it"
    return ""


def payload_of(data: bytes) -> dict[str, Any]:
    """The finding that a command's whole output is. ValueError says why it is none."""
    if len(data) > output_bytes_max:
        raise ValueError(f"it printed more than {output_bytes_max:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("its output is not UTF-8") from None
    if not text.strip():
        return {}
    try:
        value = decode_json(data)
    except ValueError:
        return {"output": text.rstrip("\r\n")}
    if not isinstance(value, dict):
        return {"output": value}
    for name in sorted(RESERVED_KEYS):
        if name in value:
            raise ValueError(f"it printed the key {name!r}, which is reserved")
    return value


def _signal_text(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def last_line(disk: Disk, path: str) -> str:
    """The last line of a file that is not blank, cut; "" when there is none."""
    seen = disk.stat(path)
    size = seen.size_bytes if seen is not None else 0
    if not size:
        return ""
    offset = max(0, size - _error_tail_bytes)
    text = disk.read(path, offset, _error_tail_bytes).decode("utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:error_line_chars_max] if lines else ""
