"""One suite for every kernel: the scratch tree as v1 and v2, and the real v1 hierarchy where this machine has one."""
