"""Tests and their helpers. `python -m tests.parity --help` compares with the kubelet's own answers."""
