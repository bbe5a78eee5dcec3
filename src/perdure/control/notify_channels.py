"""The ways a message can go: a command, a webhook, the desktop, the services of apprise.

Job: one function for each kind of channel, which sends one message and says what went wrong.
Invariants: nothing here raises for what the other side does; a channel that does not answer is
given up at its limit, so it cannot hold the others; every message carries its id, so whoever gets
it twice can tell; what is said of a failure holds no value of a variable. Never decides what is
sent, to whom or how often.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

import msgspec

from perdure.control.notify_config import Channel, expand, likely_secrets
from perdure.core.codec import to_json
from perdure.errors import HaltError
from perdure.runtime.script import run_script

problem_chars_max: Final = 300
MISSING_APPRISE: Final = "apprise is not installed: pip install 'perdure[notify]'"

_DESKTOPS: Final = {"darwin": "macosx://", "win32": "windows://"}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Message(msgspec.Struct, frozen=True):
    """What a receiver gets; as JSON it is the body of a webhook and the input of a command."""

    id: str
    """The same each time it is sent."""
    to: str
    """``owner`` or ``requester``."""
    kind: str
    task_id: str
    workspace: str
    title: str
    text: str
    at: str
    data: dict[str, Any] = {}


class Courier:
    """Sends messages through channels, with the variables of one environment."""

    def __init__(self, environment: Mapping[str, str], cwd: str) -> None:
        self._environment = environment
        self._cwd = cwd

    def send(self, channel: Channel, message: Message) -> str:
        """Send it once. Returns what went wrong, or nothing: then the other side has it.

        Blocks at most a few seconds longer than the channel's ``timeout_s``. What is given up at
        the limit may arrive all the same.
        """
        secrets: set[str] = set()
        try:
            problem = _SENDERS[channel.kind](self, channel, message, secrets)
        except HaltError as error:
            problem = f"{error.message} {error.fix}".strip()
        return _shown(problem, secrets)

    def _command(self, channel: Channel, message: Message, secrets: set[str]) -> str:
        environment = {
            **self._environment,
            "PERDURE_MESSAGE_ID": message.id,
            "PERDURE_MESSAGE_KIND": message.kind,
            "PERDURE_WORKSPACE": message.workspace,
        }
        outcome = run_script(
            channel.argv,
            cwd=self._cwd,
            environment=environment,
            timeout_s=channel.timeout_s,
            stdin=to_json(message) + b"\n",
        )
        if outcome.problem:
            return f"it cannot be started: {outcome.problem}"
        if outcome.timed_out:
            return f"it had not ended after {channel.timeout_s:g} s"
        if outcome.exit_code != 0:
            secrets.update(likely_secrets(environment))  # it may say anything that it can read
            last = outcome.output_tail.strip().splitlines()[-1:] or [""]
            return f"it ended with {outcome.exit_code}: {last[0]}".rstrip(": ")
        return ""

    def _webhook(self, channel: Channel, message: Message, secrets: set[str]) -> str:
        address = expand(channel.target, self._environment, secrets)
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return "its address is not http or https"
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "perdure",
            **{
                name: expand(value, self._environment, secrets)
                for name, value in channel.headers.items()
            },
            "Idempotency-Key": _as_header(message.id),
        }
        opener = self._opener(parts.hostname)

        def post() -> str:
            request = Request(address, to_json(message), headers, method="POST")  # noqa: S310
            with opener.open(request, timeout=channel.timeout_s) as response:
                code: int = response.status
                return "" if 200 <= code < 300 else f"it answered {code}"

        return _within(channel.timeout_s, post)

    def _opener(self, host: str) -> OpenerDirector:
        """One that goes through the proxy that the environment names, and follows nothing."""
        proxies = {}
        for scheme in ("http", "https"):
            named = self._variable(f"{scheme}_proxy")
            if named:
                proxies[scheme] = named
        if host in _LOOPBACK or _is_unproxied(host, self._variable("no_proxy")):
            proxies = {}
        return build_opener(ProxyHandler(proxies), _NoRedirect)

    def _variable(self, name: str) -> str:
        return self._environment.get(name) or self._environment.get(name.upper()) or ""

    def _apprise(self, channel: Channel, message: Message, secrets: set[str]) -> str:
        address = channel.target or _DESKTOPS.get(sys.platform, "dbus://")
        address = expand(address, self._environment, secrets)
        try:
            import apprise
        except ImportError:
            return MISSING_APPRISE
        service = apprise.Apprise()
        if not service.add(address):
            return "apprise knows no such address, or needs another package for it"

        def notify() -> str:
            title, body = map(_whole, (message.title, f"{message.text}\n[{message.id}]"))
            sent = service.notify(title=title, body=body)
            return "" if sent else "the service did not take it"

        return _within(channel.timeout_s, notify)


_SENDERS: Final[dict[str, Callable[[Courier, Channel, Message, set[str]], str]]] = {
    "command": Courier._command,
    "webhook": Courier._webhook,
    "desktop": Courier._apprise,
    "apprise": Courier._apprise,
}


def _as_header(text: str) -> str:
    """The text; percent-encoded where a header cannot have it as it is."""
    if text.isascii() and text.isprintable():
        return text
    return quote(text, errors="surrogatepass")


def _whole(text: str) -> str:
    """The text without halves of characters, which no service takes."""
    return text.encode("utf-8", "replace").decode()


def _is_unproxied(host: str, listed: str) -> bool:
    """Whether ``no_proxy`` names the host, or a domain that it is in."""
    names = [name.strip().removeprefix("*").lstrip(".") for name in listed.split(",")]
    if listed.strip() == "*":
        return True
    return any(name and (host == name or host.endswith(f".{name}")) for name in names)


class _NoRedirect(HTTPRedirectHandler):
    """A message that is sent on would arrive as an empty question, and count as delivered."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse: the answer stands as it is."""


def _within(limit_s: float, send: Callable[[], str]) -> str:
    """What ``send`` returns, if it does within the limit.

    In a thread of its own, because looking up a name and reading the head of an answer have no
    limit that covers the whole.
    """
    answers: list[str] = []

    def run() -> None:
        try:
            answers.append(send())
        except HTTPError as error:
            error.close()
            answers.append(f"it answered {error.code}")
        except URLError as error:
            answers.append(f"it cannot be reached: {error.reason}")
        except OSError as error:
            answers.append(f"it cannot be reached: {str(error) or type(error).__name__}")
        except (HTTPException, ValueError) as error:
            # Their texts quote the address and the headers, in a form that hides no secret.
            answers.append(f"it cannot be asked: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - a service of apprise may raise anything
            answers.append(f"it failed: {type(error).__name__}")

    thread = threading.Thread(target=run, name="notify", daemon=True)
    thread.start()
    thread.join(limit_s)
    return answers[0] if answers else f"it had not answered after {limit_s:g} s"


def _shown(problem: str, secrets: set[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        problem = problem.replace(secret, "***")
    return " ".join(problem.split())[:problem_chars_max]
