#!/bin/sh
# Last step of the image build, run inside the new root file system.
set -eu
# udev and the automounts serve the machine under the containers; here they would reach through to its devices.
systemctl mask systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
  systemd-udev-trigger.service systemd-udev-settle.service proc-sys-fs-binfmt_misc.automount \
  sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
  dev-hugepages.mount dev-mqueue.mount console-getty.service getty@tty1.service \
  apt-daily.timer apt-daily-upgrade.timer
systemctl enable ssh.service systemd-networkd.service gpu-fabric-lab.service gpu-fabric-lab-watch.service
systemctl disable systemd-networkd-wait-online.service || true
# A host key, a machine id: each node gets its own.
rm -f /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id
: > /etc/machine-id
# The rack serves packages itself; where the image came from serves the rack.
mkdir -p /usr/lib/gpu-fabric-lab/apt-sources
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  if [ -s "$file" ]; then mv "$file" "/usr/lib/gpu-fabric-lab/apt-sources/lab-$(basename "$file")"; fi
done
for file in /usr/lib/gpu-fabric-lab/apt-sources/*; do
  case $file in *.list | *.sources) ;; *) mv "$file" "$file.list" ;; esac
done
rm -f /etc/apt/sources.list
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /usr/share/man/* /usr/share/info/*
