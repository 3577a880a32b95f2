#!/bin/busybox sh
# The only program of a guest: prepare what the kernel's command line asks for, pack what describes the machine,
# send it through the second serial port, and end.
#
#   numalign.offline=5,7-9          CPUs to take offline
#   numalign.pages=1:2048:16,...    node : size of a page in kB : number of pages

/bin/busybox mkdir -p /bin /proc /sys /dev /out
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec >/dev/ttyS0 2>&1

for word in $(cat /proc/cmdline); do
  case $word in
    numalign.offline=*) offline=${word#*=} ;;
    numalign.pages=*) pages=${word#*=} ;;
  esac
done
for range in $(echo "$offline" | tr , ' '); do
  for cpu in $(seq "${range%-*}" "${range#*-}"); do
    echo 0 >/sys/devices/system/cpu/cpu$cpu/online || echo "numalign: CPU $cpu stays online"
  done
done
for want in $(echo "$pages" | tr , ' '); do
  node=${want%%:*}
  size=${want#*:}; count=${size#*:}; size=${size%:*}
  echo "$count" >/sys/devices/system/node/node$node/hugepages/hugepages-${size}kB/nr_hugepages
done

cd /
for place in sys/devices/system/cpu sys/devices/system/node sys/devices/virtual/memory_tiering sys/devices/cpu \
  sys/devices/cpu_core sys/devices/cpu_atom sys/bus/pci/devices sys/kernel/mm/hugepages sys/devices/pci* \
  proc/cpuinfo proc/meminfo proc/version; do
  [ -e $place ] || continue
  mkdir -p /out/guest/${place%/*}
  cp -a $place /out/guest/$place 2>/dev/null
done
# The kernel's own words, read by the shell: what the recording is compared with beside QEMU's arguments.
for node in /sys/devices/system/node/node[0-9]*; do
  awk -v node=${node##*/node} '/MemTotal/ { print node, $4 }' $node/meminfo
done >/out/guest/memory

tar -C /out -czf /out.tgz guest
stty -F /dev/ttyS1 raw 2>/dev/null
cat /out.tgz >/dev/ttyS1
echo "numalign: sent $(sha256sum /out.tgz | cut -d' ' -f1)"
sleep 1
reboot -f
