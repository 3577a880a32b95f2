"""Run by `helm test` in a pod that asks for whole CPUs: ends well when the kernel gives it as many and no others."""

import os
import sys
import time

wanted, patience = int(sys.argv[1]), float(sys.argv[2])
until = time.monotonic() + patience
while len(os.sched_getaffinity(0)) != wanted:
    if time.monotonic() > until:
        found = sorted(os.sched_getaffinity(0))
        sys.exit(f"not enforced: after {patience:.0f} s this pod, which asked for {wanted} CPUs, may run on {found}")
    time.sleep(0.2)
print(f"enforced: this pod runs on CPUs {sorted(os.sched_getaffinity(0))} and no others")
