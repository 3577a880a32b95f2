#!/bin/sh
# Linux 7.0 takes an empty write to cpuset.cpus of a cgroup with processes (Debian's 6.19.14-1~bpo13+1, 7.0.13-1~bpo13+1).
#
# Documentation/admin-guide/cgroup-v2.rst says of an empty cpuset.cpus that the cgroup uses the setting of its nearest
# ancestor with one. Up to 6.19 the kernel refuses to empty it while processes are in the cgroup (ENOSPC). From 7.0 on
# it takes the write, and the processes can use all CPUs of the parent at once. systemd writes an empty set for each unit
# without AllowedCPUs= when one of its properties changes, and at daemon-reload: on 6.19 in vain, on 7.0 not.
#
# Input: a cgroup with cpuset.cpus 1 of CPUs 0-1, a process in it, and `echo > cpuset.cpus`.
# Seen:  6.19.14: "No space left on device", in force 1. 7.0.13: no error, in force 0-1.
# Effect: whatever pins processes by the set of a systemd slice or scope loses it without an error on Linux 7.
#
# Needs qemu-system-x86_64, a static busybox, cpio, apt-get and dpkg-deb, and Debian's mirror; takes half a minute. Where
# the mirror no longer has one of the packages, it says so and ends with 1.
set -eu

suite=trixie-backports old=6.19.14 new=7.0.13 build="-1~bpo13+1"
expected="$old refused, in force 1; $new taken, in force 0-1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir -p lists/partial cache/archives/partial tree/bin
touch status
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key arch=amd64] http://deb.debian.org/debian $suite main" > sources
apt() {
    apt-get -qq -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::State::lists="$work/lists" \
        -o Dir::Cache="$work/cache" -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=- \
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root "$@"
}
apt update

cp "$(command -v busybox)" tree/bin/busybox
cat > tree/init <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /sys /dev
mount -t sysfs none /sys
mount -t devtmpfs none /dev
exec > /dev/ttyS0 2>&1
mount -t cgroup2 none /sys/fs/cgroup
cd /sys/fs/cgroup
echo +cpuset > cgroup.subtree_control
mkdir pinned
echo 1 > pinned/cpuset.cpus
sleep 1000 &
echo $! > pinned/cgroup.procs
if echo > pinned/cpuset.cpus; then told=taken; else told=refused; fi
echo "seen: $told, in force $(cat pinned/cpuset.cpus.effective)"
reboot -f
INIT
chmod +x tree/init
(cd tree && find . | cpio --quiet -o -H newc) > initrd

boot() { # boot VERSION: what that kernel does
    name="linux-binary-$1+deb13-cloud-amd64"
    apt download "$name=$1$build" >&2 || { echo "Debian's mirror has no $name $1$build any more" >&2; return 1; }
    dpkg-deb --extract "$name"_*.deb "kernel-$1"
    timeout 120 qemu-system-x86_64 -accel tcg,thread=single -smp 2 -m 256M -nodefaults -display none -no-reboot \
        -kernel "$(find "kernel-$1" -name 'vmlinuz*')" -initrd initrd -serial "file:console-$1" \
        -append "console=ttyS0 panic=-1" >&2
    sed -n 's/.*seen: \(.*[0-9]\).*/\1/p' "console-$1"
}
before=$(boot $old) after=$(boot $new)
echo "Linux $old $before; $new $after"
[ "$old $before; $new $after" = "$expected" ]
