"""Which sandbox holds on this machine: mode A (namespaces), mode B (Landlock), or none."""

from cobalt.errors import SetupError
from cobalt.sandbox.confinement import MODE_LANDLOCK, MODE_NAMESPACES
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.sealed import Zygote


def choose_mode(wanted: str = "auto") -> str:
    """The first mode that works; raises ``SetupError`` saying what is missing."""
    reasons = []
    for mode in (MODE_NAMESPACES, MODE_LANDLOCK) if wanted == "auto" else (wanted,):
        try:
            Zygote(mode, Limits()).close()
            return mode
        except SetupError as error:
            reasons.append(f"mode {mode}: {error}")
    raise SetupError("no sandbox: " + "; ".join(reasons))
