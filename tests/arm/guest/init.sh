#!/bin/busybox sh
# The first program of the guest: mount what the agent reads, run what is asked, send /out by the second disk, end.
export PATH=/opt/numalign/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/busybox HOME=/root
/bin/busybox --install -s /usr/local/busybox
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec >/dev/ttyAMA0 2>&1 </dev/null
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /out
mount -t cgroup2 cgroup2 /sys/fs/cgroup
insmod /lib/modules/*/kernel/fs/overlayfs/overlay.ko
sh -x /guest/run.sh >/out/log 2>&1
echo "ended with $?" >>/out/log
tar -C /out -cf /dev/nvme0n2 .
sync
busybox poweroff -f
