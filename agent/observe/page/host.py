"""Decides which requests are answered, by the Host header (against DNS rebinding) and the browser's Fetch Metadata.

A page on the internet may give its own name the address 127.0.0.1 once it is loaded, and then read this server's
answers as its own. So only names are answered that no other site can point at this server. Used by `server`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

LOOPBACK = "localhost"


def name_of(host: str) -> str:
    """The name in a Host header without its port, lower case; "" for what is none."""
    text = host.strip().lower()
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        return inside if bracket and _is_port(rest) else ""
    name, colon, port = text.partition(":")
    return name if _is_port(colon + port) else ""


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit())


def allowed(host: str, local: str, names: Collection[str] = ()) -> bool:
    """Return True if a request is answered.

    Args:
        host: the Host header; "" where there is none (no browser omits it).
        local: the address that the connection came in on.
        names: further names, lower case.
    """
    name = name_of(host)
    if name == LOOPBACK or name.endswith(f".{LOOPBACK}") or name in names:
        return True
    try:
        literal, here = ipaddress.ip_address(name), ipaddress.ip_address(local.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(here, "ipv4_mapped", None)
    return literal.is_loopback or literal in (here, mapped)


def foreign(site: str, mode: str) -> bool:
    """Return True if the browser marks the request as another site's (Fetch Metadata); links may be followed."""
    return site in ("cross-site", "same-site") and mode != "navigate"
