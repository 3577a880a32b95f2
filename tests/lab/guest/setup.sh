#!/bin/sh
# Makes Debian's file system a guest's: what starts, and what does not. Called with the folder that holds it.
set -eu
top=$1
units="$top/etc/systemd/system"
wants() { mkdir -p "$units/$2.wants"; ln -sf "/etc/systemd/system/$1" "$units/$2.wants/$1"; }
wants lab.service sysinit.target
ln -sf /lib/systemd/system/multi-user.target "$units/default.target"
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer systemd-timesyncd.service systemd-networkd-wait-online.service systemd-resolved.service \
    getty@tty1.service systemd-update-utmp.service systemd-journal-flush.service systemd-pstore.service \
    systemd-binfmt.service modprobe@drm.service ldconfig.service systemd-random-seed.service; do
    ln -sf /dev/null "$units/$unit"
done
# root without a password on the serial console: the guest is reached from this machine's loopback only
mkdir -p "$units/serial-getty@ttyS0.service.d"
printf '[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin root --noclear %%I linux\n' \
    >"$units/serial-getty@ttyS0.service.d/autologin.conf"
mkdir -p "$top/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=64M\nRateLimitIntervalSec=0\n' >"$top/etc/systemd/journald.conf.d/lab.conf"
printf 'net.ipv4.ip_forward=1\nnet.bridge.bridge-nf-call-iptables=1\nfs.inotify.max_user_instances=1024\n' \
    >"$top/etc/sysctl.d/lab.conf"
printf 'nameserver 127.0.0.1\n' >"$top/etc/resolv.conf"
printf '127.0.0.1 localhost\n' >"$top/etc/hosts"
printf '/dev/nvme0n2 /var/lib/containerd ext4 defaults 0 0\n' >"$top/etc/fstab"
mkdir -p "$top/var/lib/containerd" "$top/etc/kubernetes/manifests" "$top/etc/containerd" "$top/etc/cni/net.d" "$top/opt/cni" "$top/var/lib/images"
ln -sfn /usr/lib/cni "$top/opt/cni/bin"
