"""The C library gives large pieces of memory back at once, and all threads share what it keeps (glibc's mallopt).

By default glibc keeps a heap for each thread, and no longer returns pieces of a size of which one was freed. An
object of a tenant has megabytes, as bytes, text and values, and a dozen threads read such objects: each heap kept the
room of the largest.
https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import contextlib
import ctypes

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
LARGE = 128 * 1024
"""Bytes of a piece that is the kernel's again once it is freed: glibc's own first choice, which then stays."""


def keep_little() -> None:
    """From now on, before the threads begin; nothing where the C library is another one."""
    with contextlib.suppress(AttributeError, OSError):  # musl has no mallopt, and keeps little by itself
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGE)
        library.mallopt(_ARENA_MAX, 1)
