#!/bin/sh
# Process 1 of a machine whose disk is this one's, with all that is written in memory: boot.sh ROOT TREE PACKAGES PYTHON PEERS
#
# Runs in namespaces of its own, whose end undoes all of it. TREE becomes /srv/shardmq, PACKAGES (of Python) /opt/packages,
# PYTHON (an installation) /opt/python, all three read-only. Where PEERS is no empty word, systemd is that of this folder.
set -e
PATH=$PATH:/usr/sbin:/sbin # which not everybody has in theirs
root=$1 tree=$2 packages=$3 python=$4 peers=$5

mount -t tmpfs -o mode=755 none "$root"
cd "$root"
mkdir upper work disk
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay disk
cd disk
if [ -n "$peers" ]; then
    mount -t overlay -o "lowerdir=$peers/lib:$peers/usr/lib:/usr/lib" overlay usr/lib
    mount -t overlay -o "lowerdir=$peers/bin:$peers/usr/bin:/usr/bin" overlay usr/bin
fi

# Of what this machine is set up to run, nothing; of systemd's own units those without which none starts.
for place in etc/systemd/system etc/shardmq opt/shardmq var/lib/shardmq var/log/journal; do rm -rf "./$place"; done
units=opt/units
mkdir -p etc/systemd/system "$units/sysinit.target.wants"
for unit in basic final local-fs multi-user network network-online paths shutdown slices sockets swap sysinit timers umount; do
    ln -s "/lib/systemd/system/$unit.target" "$units/"
done
for unit in systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket; do
    ln -s "/lib/systemd/system/$unit" "$units/"
done
ln -s ../systemd-journald.service "$units/sysinit.target.wants/"
echo 0123456789abcdef0123456789abcdef > etc/machine-id

# The kernel is shared with this machine: nothing may be set there but what is of a namespace.
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for place in run tmp dev; do mount -t tmpfs -o mode=755 none "$place"; done
chmod 1777 tmp
for device in null,3 zero,5 full,7 random,8 urandom,9; do mknod -m 666 "dev/${device%,*}" c 1 "${device#*,}"; done
mknod -m 666 dev/tty c 5 0
ln -s /proc/self/fd dev/fd
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 none dev/shm

mkdir -p srv/shardmq opt/packages opt/python
given() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }
given "$tree" srv/shardmq
given "$packages" opt/packages
given "$python" opt/python
echo /opt/python/lib > etc/ld.so.conf.d/00-python.conf
chroot . ldconfig
for address in 127.0.0.1/8 10.0.0.1/32 10.0.0.2/32 10.0.0.3/32 10.0.0.11/32 192.0.2.1/32; do
    ip address add "$address" dev lo
done
ip link set lo up
echo alpha > etc/hostname

mkdir old
pivot_root . old
exec chroot . /bin/sh -c 'umount -l /old && rmdir /old && exec /lib/systemd/systemd --unit=multi-user.target'
