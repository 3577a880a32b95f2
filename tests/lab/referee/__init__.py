"""Sequences of pods before numalign and before a real kubelet, and the kernel's own word on them."""
