"""A model API on loopback that plays a script: enough of three dialects for the real clients.

Each conversation goes the same way: read the contract that the message names, write the file that
the contract asks for with the word that its goal holds, or the findings and then the ledger of its
units, say that it is done. How far a conversation
is follows from the tool results that the request carries, so requests of several clients mix
freely. A request without tools is a side question of the client and gets a short text.
"""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from shlex import quote
from typing import Any, Self

CONTRACT = re.compile(r"contracts/inv-[0-9A-Za-z-]+\.json")
OUTPUT = re.compile(r"artifacts/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+\.txt")
SHARD = re.compile(r"artifacts/[A-Za-z0-9_-]+/shards/inv-[0-9A-Za-z-]+")
KEY = re.compile(r'"key\\+": ?\\+"([a-z]+)')
"""Of a unit, in a contract that stands in a text that stands in JSON."""
WORD = re.compile(r"the word ([A-Z]+)")


class ModelApi:
    """The server. ``with ModelApi(workspace) as api: ... api.url``."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.hang_at: int | None = None
        """The step at which the next conversation gets no answer; once."""
        self.hung = threading.Event()
        """Set when such a request has come in."""
        self.status = 200
        """Another one makes every answer an error."""
        self.error = ""
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def seen(self, path: str, body: dict[str, Any]) -> None:
        """Note one request."""
        with self._lock:
            self.requests.append((path, body))

    def hold(self, step: int) -> bool:
        """Whether this request was held until the end of the test, when nobody waits any more."""
        with self._lock:
            if self.hang_at != step:
                return False
            self.hang_at = None
        self.hung.set()
        self._released.wait()
        return True

    def plan(self, said: str, results: int) -> tuple[str, str, str]:
        """What to do next by the text of the conversation and the tool results in it.

        ``read`` with the contract, ``write`` with path and content, or ``say`` with a text.
        """
        contract = CONTRACT.search(said)
        if contract is None:
            return "say", "No contract is named.", ""
        if results == 0:
            return "read", f"{self.workspace}/{contract[0]}", ""
        writes = list(files_of(said))
        if not writes:
            return "say", "The contract names no output.", ""
        if results > len(writes):
            return "say", "It is done.", ""
        path, content = writes[results - 1]
        return "write", f"{self.workspace}/{path}", content


def files_of(said: str) -> Iterator[tuple[str, str]]:
    """What a conversation that holds a contract has to write: paths and contents."""
    if shard := SHARD.search(said):
        keys = list(dict.fromkeys(KEY.findall(said)))
        findings = [{"_key": key, "length": len(key)} for key in keys]
        ledger = [{"unit_id": key, "status": "ok"} for key in keys]
        for name, lines in (("findings", findings), ("ledger", ledger)):
            yield f"{shard[0]}/{name}.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines)
        return
    output, word = OUTPUT.search(said), WORD.search(said)
    if output is not None and word is not None:
        yield output[0], f"{word[1]}\n"


def answer_messages(api: ModelApi, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The dialect of Claude Code."""
    said = json.dumps(body.get("messages", []))
    results = said.count('"tool_result"')
    names = {tool.get("name") for tool in body.get("tools", [])}
    action, target, content = ("say", "Fine.", "") if not names else api.plan(said, results)
    if names and api.hold(results):
        return
    usage = {"input_tokens": 100, "output_tokens": 1}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage,
        "model": body.get("model"), "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip
    yield {"type": "message_start", "message": message}
    if action == "say":
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": target}
    else:
        call = {"file_path": target}
        if action == "write":
            call["content"] = content
        name = "Read" if action == "read" else "Write"
        block = {"type": "tool_use", "id": f"toolu_{results}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if action == "say" else "tool_use"
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


def answer_responses(api: ModelApi, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The dialect of Codex."""
    said = json.dumps(body.get("input", []))
    results = said.count('_call_output"')
    names = {tool.get("name") for tool in body.get("tools", [])}
    action, target, content = api.plan(said, results)
    if api.hold(results):
        return
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    if action == "say":
        text = [{"type": "output_text", "text": target}]
        item: dict[str, Any] = {"type": "message", "role": "assistant", "content": text}
    else:
        line = f"cat {target}" if action == "read" else f"printf %s {quote(content)} > {target}"
        arguments = _shell_arguments(names, line, api.workspace)
        item = {"type": "function_call", "call_id": f"call_{results}", **arguments}
    yield {"type": "response.output_item.done", "item": item}
    usage = {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120,
    }  # fmt: skip
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}


def _shell_arguments(names: set[Any], line: str, workspace: str) -> dict[str, str]:
    if "exec_command" in names:
        return {"name": "exec_command", "arguments": json.dumps({"cmd": line})}
    if "shell_command" in names:
        return {"name": "shell_command", "arguments": json.dumps({"command": line})}
    words = {"command": ["sh", "-c", line], "workdir": workspace}
    return {"name": "shell", "arguments": json.dumps(words)}


def answer_contents(api: ModelApi, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The dialect of Gemini CLI."""
    said = json.dumps(body.get("contents", []))
    results = said.count('"functionResponse"')
    tools = body.get("tools") or []
    action, target, content = ("say", "{}", "") if not tools else api.plan(said, results)
    if tools and api.hold(results):
        return
    if action == "say":
        part: dict[str, Any] = {"text": target}
    else:
        call = {"file_path": target}
        if action == "write":
            call["content"] = content
        name = "read_file" if action == "read" else "write_file"
        part = {"functionCall": {"id": f"call-{results}", "name": name, "args": call}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


Dialect = Callable[[ModelApi, dict[str, Any]], Iterator[dict[str, Any]]]
PATHS: dict[str, Dialect] = {
    "/v1/messages": answer_messages,
    "/responses": answer_responses,
    ":streamGenerateContent": answer_contents,
    ":generateContent": answer_contents,
}
COUNTS = {"count_tokens": b'{"input_tokens": 100}', ":countTokens": b'{"totalTokens": 100}'}


def _handler(api: ModelApi) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        model_api = api

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model_api: ModelApi

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        self.model_api.seen(self.path, {})
        self._send(200, b'{"data": [], "models": []}')

    def do_POST(self) -> None:
        api = self.model_api
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            body = {}
        path = self.path.partition("?")[0]
        api.seen(path, body)
        dialect = next((PATHS[end] for end in PATHS if path.endswith(end)), None)
        count = next((COUNTS[end] for end in COUNTS if path.endswith(end)), None)
        if dialect is None:
            self._send(404 if count is None else 200, count or b'{"error": {"message": "no"}}')
        elif api.status != 200:
            self._send(api.status, api.error.encode())
        elif path.endswith(":generateContent"):
            for answer in dialect(api, body):
                self._send(200, json.dumps(answer).encode())
        else:
            self._events(dialect(api, body))

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _events(self, events: Iterator[dict[str, Any]]) -> None:
        """Server-sent events; those that have a type are named by it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(ConnectionError):  # the client may have been killed
            for event in events:
                head = f"event: {event['type']}\n" if "type" in event else ""
                self.wfile.write(f"{head}data: {json.dumps(event)}\n\n".encode())
