#!/bin/sh
# Build the node's root file system from Debian packages: build.sh SUITE TARGET.tar
set -eu
suite=$1 target=$2
here=$(cd "$(dirname "$0")" && pwd)
command -v mmdebstrap >/dev/null || {
  echo "No registry answers and mmdebstrap is missing: apt-get install mmdebstrap" >&2
  exit 1
}
mkdir -p "$(dirname "$target")"
part=$target.$$
trap 'rm -f "$part"' EXIT
include=$(grep -v '^#' "$here/packages.txt" | paste -sd, -)
nice mmdebstrap --variant=minbase --format=tar --include="$include" \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  --customize-hook="sync-in '$here/rootfs' /" \
  --customize-hook='chown -R 0:0 "$1/usr/lib/gpu-fabric-lab" "$1/usr/local/sbin" "$1/etc/systemd/system"' \
  --customize-hook="copy-in '$here/finish.sh' /tmp" \
  --customize-hook='chroot "$1" sh /tmp/finish.sh && rm "$1/tmp/finish.sh"' \
  "$suite" "$part"
mv "$part" "$target"
