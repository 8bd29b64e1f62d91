"""The two ways to close a sandbox: their names, their aliases, and what a machine needs for each."""

from typing import Literal, get_args

Mode = Literal["namespaces", "landlock"]

MODES: tuple[Mode, ...] = get_args(Mode)
"""The stronger one first."""

NAMESPACES, LANDLOCK = MODES

_BY_NAME: dict[str, Mode | Literal["auto"]] = {
    "auto": "auto",
    "namespaces": NAMESPACES,
    "landlock": LANDLOCK,
    "A": NAMESPACES,
    "B": LANDLOCK,
}

REMEDIES: dict[Mode, str] = {
    NAMESPACES: (
        "mode namespaces needs Linux 5.12 or newer and user namespaces: as an administrator"
        " `sysctl user.max_user_namespaces=65536`, on Debian `sysctl kernel.unprivileged_userns_clone=1`,"
        " on Ubuntu `sysctl kernel.apparmor_restrict_unprivileged_userns=0`;"
        " for a container `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`"
    ),
    LANDLOCK: (
        "mode landlock needs Linux 6.12 or newer with Landlock (`landlock` among the kernel's `lsm=` modules), and"
        " Python installed where everybody can read it if the server runs as root"
    ),
}
"""What to do where a mode does not hold."""


def resolve_mode(name: str) -> Mode | Literal["auto"]:
    """The mode of that name or alias, or ``auto`` (the first that holds); raises ``ValueError`` for any other.

    >>> resolve_mode("landlock"), resolve_mode("A"), resolve_mode("auto")
    ('landlock', 'namespaces', 'auto')
    """
    if name not in _BY_NAME:
        raise ValueError(f"mode must be one of auto, {', '.join(MODES)}, not {name!r}")
    return _BY_NAME[name]
