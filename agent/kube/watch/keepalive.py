"""Connections that notice within a minute that the other end is gone: the watches of `agent.kube.watch.handlers`."""

from __future__ import annotations

import socket

import aiohttp

KEEPALIVE_IDLE, KEEPALIVE_EVERY, KEEPALIVE_TIMES = 30, 10, 3
"""Seconds of silence before the first probe, seconds between two, and how many may stay without an answer."""


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket on which a silent loss of the other end (a failed node, a forgetful load balancer) shows in a minute.

    https://man7.org/linux/man-pages/man7/tcp.7.html
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TIMES)
    return made
