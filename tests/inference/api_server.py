"""A local HTTP server that speaks the chat-completions protocol, and misbehaves on demand."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cobalt.inference.endpoints import TRIAL_MESSAGES

Answer = tuple[str, dict[str, Any]]
"""How to answer one request: a kind (see ``Handler``) and its details."""

KEY = "sk-local-secret-0123456789"


def quick_clients(patch: pytest.MonkeyPatch, retries: int) -> None:
    """Either client asks again so many times, almost without pauses, and reads no certificates: no test has HTTPS."""
    patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it is imported below, and would download its price list
    patch.setattr("cobalt.inference.endpoints.RETRIES", retries)
    patch.setattr("cobalt.inference.endpoints.FIRST_PAUSE_S", 0.001)
    patch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    for name in ("INITIAL_RETRY_DELAY", "JITTER"):
        patch.setattr(f"litellm.utils.{name}", 0.001)
    patch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **__: None)


class ApiServer(ThreadingHTTPServer):
    """``plan(request_body, attempt)`` says how to answer; ``attempt`` counts equal bodies from 0.

    The engine's trial before its first request is not counted, and answered well unless ``trial`` says otherwise.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, plan: Any):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan = plan
        self.lock = threading.Lock()
        self.attempts: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.kinds: Counter[str] = Counter()
        self.running = self.most_running = 0
        self.trial: Answer = ("ok", {})

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def good_answer(body: dict[str, Any], text: str = "hello", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "own_of_the_provider": 3}
    usage["completion_tokens_details"] = {"reasoning_tokens": 5, "accepted_prediction_tokens": None}
    answer = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]}
    return {**answer, "choices": choices, "usage": usage}


class JsonHandler(BaseHTTPRequestHandler):
    """Answers with JSON, and prints nothing."""

    protocol_version = "HTTP/1.1"

    def send(self, code: int, answer: Any, headers: dict[str, str] | None = None) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        for name, value in {**usual, **(headers or {})}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Keep the test output clean."""


class Handler(JsonHandler):
    """Kinds: ok, status (code, headers, message), slow and trickle (seconds), garbage (bytes), drop, half (of it)."""

    server: ApiServer

    def do_GET(self) -> None:
        self.send(200, b'{"object": "list", "data": [{"id": "local", "object": "model"}]}')

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body, server = json.loads(raw), self.server
        if self.path.endswith("/tokenize"):
            self.send(404, b"{}")
            return
        if body["messages"] == TRIAL_MESSAGES:
            kind, details = server.trial
            getattr(self, f"answer_{kind}")(body, **details)
            return
        with server.lock:
            attempt = server.attempts[raw.decode()]
            server.attempts[raw.decode()] += 1
            server.bodies.append(body)
            server.running += 1
            server.most_running = max(server.most_running, server.running)
        kind, details = server.plan(body, attempt)
        with server.lock:
            server.kinds[kind] += 1
        try:
            getattr(self, f"answer_{kind}")(body, **details)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with server.lock:
                server.running -= 1

    def answer_ok(self, body: dict[str, Any], **said: Any) -> None:
        self.send(200, good_answer(body, **said))

    def answer_status(self, body: dict[str, Any], code: int, message: str = "no", **headers: str) -> None:
        error = {"error": {"message": message, "type": "error", "code": headers.pop("code_text", None)}}
        self.send(code, error, headers)

    def answer_slow(self, body: dict[str, Any], seconds: float) -> None:
        time.sleep(seconds)
        self.answer_ok(body)

    def answer_trickle(self, body: dict[str, Any], seconds: float, pieces: int = 20) -> None:
        """A good answer, after so many seconds of single spaces."""
        content = json.dumps(good_answer(body)).encode()
        self.send(200, b"", {"Content-Length": str(pieces + len(content))})
        for _ in range(pieces):
            self.wfile.write(b" ")
            time.sleep(seconds / pieces)
        self.wfile.write(content)

    def answer_garbage(self, body: dict[str, Any], content: bytes) -> None:
        self.send(200, content)

    def answer_drop(self, body: dict[str, Any]) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def answer_half(self, body: dict[str, Any]) -> None:
        self.send(200, b'{"id": "x", "choices"', {"Content-Length": "4000"})
        self.close_connection = True


def api_server(plan: Any) -> AbstractContextManager[ApiServer]:
    """Serve on 127.0.0.1 while the body runs."""
    return serving(ApiServer(plan))


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    """Have a server answer while the body runs."""
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
