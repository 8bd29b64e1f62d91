"""What the apps share: how Serve watches replicas, and arguments. Needs no Ray."""

import sys
from typing import Any

from pydantic import BaseModel, Field

HEALTH: dict[str, Any] = {"health_check_period_s": 10, "health_check_timeout_s": 60}
"""Options of a deployment: how often Serve checks a replica, and how long it waits for the answer."""

TOKEN_VARIABLE = "COBALT_HTTP_TOKEN"
"""In an app's environment the token that callers must send, in a client's the one that it sends."""
IN_FLIGHT_HEADER = "x-max-in-flight"
"""In answers of the vLLM app: how many requests keep all its replicas busy."""


class HttpConfig(BaseModel):
    """Arguments that the apps share."""

    max_body_mb: int = Field(64, ge=1)
    """Largest body of a request, MiB."""
    body_timeout_s: float = Field(10.0, gt=0)
    """Seconds within which a body must have come."""


def show_help(how: str | None, arguments: type[BaseModel]) -> None:
    """What ``python APP.py --help`` prints; anything else is told to use ``serve run``, exit code 2."""
    asked = sys.argv[1:] in (["--help"], ["-h"])
    out = sys.stdout if asked else sys.stderr
    print(f"{(how or '').strip()}\n\n{arguments.__doc__}\n", file=out)
    for name, field in arguments.model_fields.items():
        about = " ".join((field.description or "").split())
        print(f"  {name}={field.default}" + (f"    {about}" if about else ""), file=out)
    sys.exit(0 if asked else 2)
