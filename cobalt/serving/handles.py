"""Finding a running Ray cluster."""

import os
from pathlib import Path

from cobalt.errors import SetupError

PROBE_TIMEOUT_S = 5.0
PING = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""A call that a head node answers at once. Any answer will do, also a refusal for lack of a token."""
NO_TOKEN = "asks for a token: export RAY_AUTH_MODE=token"
OTHER_TOKEN = "asks for another token: export RAY_AUTH_TOKEN as it was when the cluster was started"
TOKEN_FILE = Path(".ray", "auth_token")
"""Where Ray looks for a token in the home folder."""


def cluster_address() -> str:
    """Address of the Ray cluster of ``RAY_ADDRESS``, or of this machine. The cluster has answered just now.

    Raises ``SetupError`` within ``PROBE_TIMEOUT_S`` if none answers. Ray itself would try for many minutes, also at an
    address that a stopped cluster left in its folder.
    """
    import grpc
    from ray._private.services import get_ray_address_from_environment

    try:
        address = get_ray_address_from_environment("auto", None)
    except ConnectionError:
        raise SetupError("no Ray cluster on this machine, and RAY_ADDRESS names none") from None
    metadata = ()
    with_token = os.environ.get("RAY_AUTH_MODE") == "token"
    if with_token:  # what Ray itself would send
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / TOKEN_FILE)
        token = os.environ.get("RAY_AUTH_TOKEN") or (file.read_text().strip() if file.is_file() else "")
        metadata = (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address.rpartition("/")[2], [("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(PING).future(b"", timeout=PROBE_TIMEOUT_S, metadata=metadata)
        code = call.code()  # waits
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
        raise SetupError(f"no Ray cluster at {address}")
    if code == grpc.StatusCode.UNAUTHENTICATED:
        raise SetupError(f"the Ray cluster at {address} {OTHER_TOKEN if with_token else NO_TOKEN}")
    return address
