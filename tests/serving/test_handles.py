"""Looking for a Ray cluster ends soon and in one line, whatever is or is not at the address."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from cobalt.errors import SetupError
from cobalt.serving import execution, handles


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    """A machine without Ray: its folder is empty, and no head runs."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
    monkeypatch.setattr(handles, "PROBE_TIMEOUT_S", 1.0)


def complaint():
    started = time.monotonic()
    with pytest.raises(SetupError) as refused:
        execution.app_handle()
    assert time.monotonic() - started < 20, "Ray itself was asked"
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_no_cluster_at_all():
    told = complaint()
    assert told.startswith("no execution service (no Ray cluster on this machine, and RAY_ADDRESS names none); start")


def test_an_address_that_a_stopped_cluster_left(tmp_path):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    assert "no Ray cluster at 127.0.0.1:1" in complaint()


def test_something_else_at_the_address(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
        assert "no Ray cluster at 127.0.0.1:" in complaint()


def test_a_cluster_that_asks_for_a_token(monkeypatch, tmp_path):
    def answer(_request, context):
        if ("authorization", "Bearer right") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
        return b""

    service, _, method = handles.PING[1:].rpartition("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(answer)})
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        assert "asks for a token: export RAY_AUTH_MODE=token" in complaint()
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        assert "asks for another token: export RAY_AUTH_TOKEN" in complaint()
        monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
        assert "asks for another token: export RAY_AUTH_TOKEN" in complaint()
        monkeypatch.setenv("RAY_AUTH_TOKEN", "right")
        assert handles.cluster_address() == f"127.0.0.1:{port}"
        monkeypatch.delenv("RAY_AUTH_TOKEN")
        (tmp_path / "token").write_text("right\n")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
        assert handles.cluster_address() == f"127.0.0.1:{port}"
    finally:
        server.stop(None)
