"""Guests that record themselves: QEMU machines with NUMA nodes, booted to pack their own /sys.

    python -m tests.guests list
    python -m tests.guests record [SHAPE...]

A guest is a kernel of Debian, a busybox and `init.sh`; it needs no disk, no network and no root. What QEMU was told
is what discovery must find: `truth` reads it from QEMU's arguments, tests/replay/test_guests.py compares. Recordings
lie in tests/replay/machines.

    shapes   the machines          needs   programs, kernel, initramfs (cached)
    boot     one guest             truth   arguments -> facts
"""
