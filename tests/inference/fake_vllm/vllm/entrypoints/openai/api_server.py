"""A server that starts, listens, refuses and hangs up as vLLM's does, and answers with what it was asked.

Some seeds misbehave: SLOW answers after a minute, CRASH ends the server at its first request, GIVE_UP is broken off. A
character of the messages is a token.
"""

import argparse
import json
import os
import select
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SLOW, CRASH, GIVE_UP = 666, 667, 668
FOLDER = Path(os.environ["FAKE_VLLM_DIR"])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(500 if (FOLDER / "dead").exists() else 200, {})
        elif self._admitted():
            models = [{"id": FLAGS.served_model_name, "object": "model", "max_model_len": FLAGS.max_model_len}]
            self._send(200, {"object": "list", "data": models, "path": self.path})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt_tokens = sum(len(message["content"]) for message in body["messages"])
        if self.path == "/tokenize":
            self._send(200, {"count": prompt_tokens, "tokens": []})
        elif self.path == "/v1/chat/completions" and self._admitted():
            self._complete(body, prompt_tokens)

    def _complete(self, body: dict[str, Any], prompt_tokens: int) -> None:
        if body["model"] != FLAGS.served_model_name:
            self._send(404, {"error": {"message": f"The model {body['model']} does not exist."}})
            return
        if prompt_tokens + body["max_tokens"] > FLAGS.max_model_len or not 0 < body["top_p"] <= 1:
            self._send(400, {"object": "error", "message": "too large", "type": "BadRequestError", "code": 400})
            return
        seed, reason = body.get("seed"), "stop"
        if seed == CRASH and not (FOLDER / "crashed").exists():
            (FOLDER / "crashed").touch()
            os._exit(1)
        if seed == GIVE_UP:
            reason = "abort"
        if seed == SLOW:
            (FOLDER / "slow").touch()
            select.select([self.connection], [], [])
            assert self.connection.recv(1, socket.MSG_PEEK) == b"", "the caller has hung up"
            (FOLDER / "aborted").touch()
            self.close_connection = True
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": json.dumps(body)}, "finish_reason": reason}
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 7, "total_tokens": prompt_tokens + 7}
        self._send(
            200,
            {"id": "x", "object": "chat.completion", "created": 0, "model": "", "choices": [choice], "usage": usage},
        )

    def _admitted(self) -> bool:
        admitted = self.headers["authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}"
        if not admitted:
            self._send(401, {"error": "Unauthorized"})
        return admitted

    def _send(self, code: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Keep the test output clean."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def parsed() -> argparse.Namespace:
    """Some of vLLM's flags; another one ends the server, as there."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("model", "served-model-name", "host", "generation-config", "uvicorn-log-level", "dtype"):
        parser.add_argument(f"--{name}")
    for name, default in (("port", 0), ("tensor-parallel-size", 1), ("max-num-seqs", 0), ("max-model-len", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction)
    return parser.parse_args()


if __name__ == "__main__":
    FLAGS = parsed()
    (FOLDER / "pid").write_text(str(os.getpid()))
    (FOLDER / "flags").write_text(json.dumps(vars(FLAGS)))
    Server((FLAGS.host, FLAGS.port), Handler).serve_forever()
