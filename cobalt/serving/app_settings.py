"""What the two apps have in common: how Serve watches their replicas, and the answer to a bad request."""

from typing import Any

HEALTH: dict[str, Any] = {"health_check_period_s": 10, "health_check_timeout_s": 60}
"""Options of a deployment: how often Serve asks a replica whether it is well, and how long it waits for the answer."""

UNPROCESSABLE = 422
"""HTTP status of a body that cannot be used."""
