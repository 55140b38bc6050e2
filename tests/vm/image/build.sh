#!/bin/sh
# Build the machines' disk from Debian packages, as root: build.sh SUITE TARGET_DIRECTORY PUBLIC_KEY_FILE
# Leaves disk.raw (ext4, no partitions), vmlinuz, initrd.img and host_key.pub in the target.
set -eu
suite=$1 target=$2 key=$3
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
include=$(grep -v '^#' "$here/packages.txt" | paste -sd, -)
nice mmdebstrap --variant=minbase --format=directory --include="$include" \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/lib/modules/*/kernel/sound/*' \
  --dpkgopt='path-exclude=/lib/modules/*/kernel/drivers/gpu/*' \
  --dpkgopt='path-exclude=/lib/modules/*/kernel/drivers/media/*' \
  --dpkgopt='path-exclude=/lib/modules/*/kernel/drivers/net/wireless/*' \
  --dpkgopt='path-exclude=/lib/modules/*/kernel/drivers/staging/*' \
  --dpkgopt='path-exclude=/lib/modules/*/kernel/drivers/iio/*' \
  --dpkgopt='force-confold' \
  --essential-hook="sync-in '$here/rootfs' /" \
  --customize-hook='chown -R 0:0 "$1/usr/lib/railyard-vm" "$1/etc/systemd/system"' \
  --customize-hook="copy-in '$here/finish.sh' /tmp" \
  --customize-hook='chroot "$1" sh /tmp/finish.sh && rm "$1/tmp/finish.sh"' \
  --customize-hook='mkdir -p -m 700 "$1/root/.ssh"' \
  --customize-hook="upload '$key' /root/.ssh/authorized_keys" \
  --customize-hook='chmod 600 "$1/root/.ssh/authorized_keys"' \
  "$suite" "$root"
mkdir "$scratch/out"
cp "$root"/boot/vmlinuz-* "$scratch/out/vmlinuz"
cp "$root"/boot/initrd.img-* "$scratch/out/initrd.img"
cp "$root/etc/ssh/ssh_host_ed25519_key.pub" "$scratch/out/host_key.pub"
truncate -s 4G "$scratch/out/disk.raw"
nice mke2fs -q -t ext4 -d "$root" "$scratch/out/disk.raw"
mv "$scratch/out" "$target"
