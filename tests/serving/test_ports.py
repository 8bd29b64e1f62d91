"""The ports of servers that are started later."""

import pytest

from cobalt.errors import SetupError
from cobalt.serving import ports


@pytest.mark.parametrize(
    ("kernels", "ours"), [((32_768, 60_999), (10_000, 32_767)), ((16_000, 65_535), (10_000, 15_999))]
)
def test_a_port_is_none_that_connections_get(kernels, ours, tmp_path, monkeypatch):
    (tmp_path / "range").write_text("{}\t{}\n".format(*kernels))
    monkeypatch.setattr(ports, "KERNELS", tmp_path / "range")
    assert all(ours[0] <= ports.free_port() <= ours[1] for _ in range(25))


def test_no_port_is_said(tmp_path, monkeypatch):
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "KERNELS", tmp_path / "range")
    with pytest.raises(SetupError, match="no port from 10000 to 60999"):
        ports.free_port()
