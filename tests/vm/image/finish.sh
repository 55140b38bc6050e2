#!/bin/sh
# Last step of the image build, run inside the new root file system.
set -eu
chmod 755 /usr/lib/railyard-vm/*
systemctl --quiet enable ssh.service soft-roce.service
# Each run chooses one network manager; nothing here may hold up or add to the boot.
systemctl --quiet disable systemd-networkd.service NetworkManager.service networking.service \
  NetworkManager-wait-online.service systemd-networkd-wait-online.service
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
  dpkg-db-backup.timer systemd-networkd-wait-online.service NetworkManager-wait-online.service getty@tty1.service
echo '/dev/vda / ext4 defaults,noatime 0 1' >/etc/fstab
# The same host key in both machines: the controller knows it by an alias.
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/ssh_host_ed25519_key
: >/etc/machine-id
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
