"""Proxies of the environment (``HTTP_PROXY`` and its kin), and servers on this machine."""

import os
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cobalt.records.manifest import without_userinfo

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def keep_loopback_direct() -> None:
    """Have this process, and what it starts, reach servers on this machine without a proxy."""
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name for name in listed.split(",") if name.strip()]
    # clients differ in which spelling they read
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*names, *LOOPBACK]))


def via_proxy(url: str) -> str:
    """`` through the proxy ...`` for a message about ``url``, or nothing if it is reached directly."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(parts.hostname or ""):
        return ""
    return f" through the proxy {without_userinfo(proxy)} of the environment"
