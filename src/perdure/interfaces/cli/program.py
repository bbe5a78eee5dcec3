"""The program: its commands by group, and how every call of it ends.

Job: find the command, run it, and turn whatever happens into output and an exit code. Invariants: a
command's module is imported only when that command is used; nobody ever sees a traceback unless
PERDURE_DEBUG is set; a fault of perdure exits with 70 and says so, and never looks like a refusal.
"""

import os
import sys
from importlib import import_module
from io import StringIO
from typing import Any, Final

import click

from perdure import __version__
from perdure.core.lookup import near
from perdure.errors import HaltError, StorageError, UsageError
from perdure.interfaces.cli.output import report_error
from perdure.interfaces.cli.request import Request, common_options

EXIT_FAULT: Final = 70
EXIT_INTERRUPTED: Final = 130
EXIT_UNREAD: Final = 141
"""Nobody read the output to its end: as of a program that SIGPIPE ended. 1 means a failed check."""

GROUPS: Final[dict[str, dict[str, str]]] = {
    "Task": {
        "init": "task", "status": "task", "ready": "task", "next": "task", "show": "task",
        "log": "log", "why": "provenance", "stats": "stats", "pause": "task", "resume": "task",
        "archive": "archive", "export": "transfer", "import": "transfer",
    },
    "Graph": {
        "add": "graph", "amend": "replan", "split": "replan", "quarantine": "replan",
        "cancel": "graph", "goal": "goal", "policy": "goal", "dispatch": "dispatch",
    },
    "Work": {
        "start": "work", "beat": "work", "artifact": "work", "submit": "work", "check": "work",
        "fail": "work", "retry": "work", "receipt": "work",
    },
    "People": {
        "inbox": "inbox", "ask": "ruling", "answer": "ruling", "approve": "ruling",
        "revise": "ruling", "reject": "ruling", "judge": "audits", "note": "people",
        "decide": "people",
        "steer": "steering",
    },
    "Supervision": {
        "monitor": "monitor", "observe": "supervise", "block": "supervise", "reply": "supervise",
    },
    "Run": {"run": "run", "map": "map", "job": "job", "sop": "sop"},
    "Knowledge": {"memory": "memory"},
    "Integrity": {
        "verify": "integrity", "doctor": "integrity", "audit": "task_audit",
        "selftest": "selftest", "explain": "explain",
    },
}  # fmt: skip
"""Every command, by its section in the help, with the module it is in."""

_HIDDEN: Final = {"instance": "instance"}
"""Commands that runs give themselves."""

_MODULES: Final = {name: module for group in GROUPS.values() for name, module in group.items()}

HELP: Final = """Crash-safe progress for long-running work by agents, scripts and people.

Progress counts only when it was written, verified and committed. Kill anything at any moment:
whoever comes next goes on from the last position that can be proved.

\b
  perdure run task.yaml     drive a task file; after a crash the same line goes on
  perdure init T1           or keep a task by hand: add, start, submit, status
  perdure next              what to do now, with the commands for it
"""

EPILOG: Final = """\b
Exit codes:
  0 done                          5 somebody else holds the lease, try later
  1 a check failed                6 damaged, or a person is needed
  2 the call is malformed         7 input or output failed, nothing acknowledged
  3 no such thing                 10 nothing may run until a person acts
  4 refused by a rule             11 the task is finished

The workspace is -C DIR, else PERDURE_WORKSPACE, else the current task of the nearest .perdure
upward from here. Ids may be cut to a unique beginning. A refusal says what puts it right; `perdure
explain RULE` says why there is such a rule.
"""


class Program(click.Group):
    """The commands of perdure, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, from its module."""
        module = _MODULES.get(cmd_name) or _HIDDEN.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(
            import_module(f"perdure.interfaces.cli.{module}"), f"{cmd_name}_command"
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names, or a refusal that suggests one."""
        if args and args[0] not in {*_MODULES, *_HIDDEN} and not args[0].startswith("-"):
            raise UsageError(
                f"there is no command {args[0]!r}.",
                code="unknown_command",
                fix="`perdure --help` lists them.",
                suggestions=near(args[0], _MODULES),
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their first lines, a section for each group."""
        for title, commands in GROUPS.items():
            rows = []
            for name in commands:
                command = self.get_command(ctx, name)
                if command is not None:
                    rows.append((name, command.get_short_help_str(limit=80)))
            with formatter.section(title):
                formatter.write_dl(rows)


def build_program() -> Program:
    """The program with its global options."""
    program = Program(
        "perdure",
        no_args_is_help=False,
        help=HELP,
        epilog=EPILOG,
        params=common_options(writes=True, hidden=False),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        subcommand_metavar="COMMAND [ARGS]...",
    )
    return click.version_option(__version__, message="perdure %(version)s")(program)


def main(arguments: list[str] | None = None) -> int:
    """Run one call of the command line and return its exit code. Never raises."""
    argv = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _open_missing_streams()
    try:
        return _ended(_run(argv))
    except BrokenPipeError:
        _silence(sys.stdout)
        return EXIT_UNREAD


def _run(argv: list[str]) -> int:
    as_json = "--json" in (argv[: argv.index("--")] if "--" in argv else argv)
    request = Request(_start_dir(), os.environ)
    _make_encodable()
    try:
        result: Any = build_program().main(
            argv, prog_name="perdure", standalone_mode=False, obj=request
        )
        return result if isinstance(result, int) else 0
    except HaltError as error:
        return report_error(error, as_json=as_json or request.json)
    except click.ClickException as error:
        return report_error(_usage(error), as_json=as_json or request.json)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except SystemExit:  # what click makes of a pipe that nobody reads, and of nothing else
        return EXIT_UNREAD
    except OSError as error:
        failure = StorageError.from_os(error, str(error.filename or "a file"), "input or output")
        return report_error(failure, as_json=as_json or request.json)
    except Exception as error:
        if os.environ.get("PERDURE_DEBUG"):
            raise
        return report_error(_fault(error), as_json=as_json or request.json)


def _ended(code: int) -> int:
    """Flush while a closed pipe can still be told from a fault."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:  # the terminal is gone: what was done is done, and the code says how it went
        _silence(sys.stdout)
    return code


def _silence(stream: Any) -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _start_dir() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed; only a named workspace can be found from here
        return os.environ.get("PWD") or "/"


def _open_missing_streams() -> None:
    """Give a caller who has closed our output streams ones that go nowhere."""
    if sys.stdout is None:
        sys.stdout = StringIO()
    if sys.stderr is None:
        sys.stderr = StringIO()


def _make_encodable() -> None:
    """Output never fails for a character that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _usage(error: click.ClickException) -> HaltError:
    """A complaint of the parser, with what may have been meant."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "perdure"
    code, message, suggestions = "usage", error.format_message(), []
    if isinstance(error, click.NoSuchOption):
        code, message = "unknown_option", f"{path} has no option {error.option_name}."
        known = [
            name
            for param in (context.command.params if context is not None else [])
            for name in param.opts
            if name.startswith("-")
        ]
        suggestions = near(error.option_name, known)
    return UsageError(
        message, code=code, fix=f"`{path} --help` shows how it is called.", suggestions=suggestions
    )


def _fault(error: Exception) -> HaltError:
    fault = HaltError(
        f"this is a fault of perdure, not of your call: {type(error).__name__}: {error}.",
        code="fault",
        fix="What was acknowledged is safe. PERDURE_DEBUG=1 shows the traceback for a report.",
    )
    fault.exit_code = EXIT_FAULT
    return fault
