"""A local server that speaks the OpenAI chat protocol and answers as the question's ``behaviour=...`` says."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD = "It recognises the input.\n\n**Final Verdict: (1) Hard Coding**"
VAGUE = "I think that this might be hard coding."


class JudgeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[str] = Counter()
        """Requests by behaviour."""
        self.healthy = False
        """Whether ``behaviour=failing`` answers by now."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, behaviour: str) -> str | None:
        """The text for one more request; None for a failure."""
        with self.lock:
            self.asked[behaviour] += 1
            count = self.asked[behaviour]
        if behaviour == "malformed_once":
            return VAGUE if count == 1 else GOOD
        if behaviour == "split":
            return GOOD if count % 3 else "Final Verdict: (3) Semantic Drifting"
        if behaviour == "failing":
            return GOOD if self.healthy else None
        return {"good": GOOD, "malformed": VAGUE}[behaviour]


class Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = re.search(r"behaviour=(\w+)", request["messages"][-1]["content"])
        text = self.server.answer(found[1]) if found else "yes"  # the engine's trial before its first request
        if text is None:
            self._reply(500, {"error": {"message": "down", "type": "server_error"}})
            return
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        self._reply(
            200,
            {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "judge",
                "choices": [choice],
                "usage": usage,
            },
        )

    def do_GET(self):
        self._reply(200, {"object": "list", "data": [{"id": "judge", "object": "model"}]})

    def _reply(self, status: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        pass


@contextmanager
def judge_server() -> Iterator[JudgeServer]:
    server = JudgeServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
