"""SIGTERM: a last checkpoint for every open job, then the end it would have been anyway.

Job: the handler, and who is asked. Invariants: it is installed only by the main thread and only in
the place of the default action, so a program with a handler of its own keeps it; a job in the
middle of a call, ``close`` included, is left alone and saves itself at the end of it, and then the
process ends; a second signal does not wait; jobs are known by weak references only. Nothing depends
on it: the log alone loses nothing.
"""

import os
import signal
import threading
import weakref
from types import FrameType
from typing import Protocol


class Saved(Protocol):
    """An open job, as an ending sees it."""

    end_wanted: bool
    """Set when the process is to end, and this job saves itself first."""

    def save_for_end(self) -> bool:
        """Write a checkpoint now; False when a call is under way, which does it at its end."""


_open_jobs: "dict[int, weakref.ref[Saved]]" = {}
_asked = False


def watch(job: Saved) -> None:
    """Let a job be saved when the process is told to end."""
    _open_jobs[id(job)] = weakref.ref(job)
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def unwatch(job: Saved) -> None:
    """Forget a job that was closed. After the last one the default action is back."""
    _open_jobs.pop(id(job), None)
    if not _open_jobs and _in_main_thread() and signal.getsignal(signal.SIGTERM) == _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def go_on_ending() -> None:
    """A job that was waited for has saved itself: end the process when it was the last.

    Only the main thread may bring the default action back, so another one signals again.
    """
    if any(job.end_wanted for job in _jobs()):
        return
    if _in_main_thread():
        _end()
    else:
        # Sent to the main thread itself: it may be waiting in a call that only this ends.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global _asked
    again, _asked = _asked, True
    busy = [job for job in _jobs() if not job.save_for_end()]
    if again or not busy:
        _end()


def _end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)


def _jobs() -> list[Saved]:
    return [job for ref in list(_open_jobs.values()) if (job := ref()) is not None]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _disown() -> None:
    """In a forked child: it has no job, and ends at once when it is told to, as before."""
    _open_jobs.clear()
    if signal.getsignal(signal.SIGTERM) == _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
