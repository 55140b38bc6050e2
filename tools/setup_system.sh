#!/bin/sh
# Install what the lab rack needs from the system: a container engine and the image builder.
# Installs by apt as root on Debian and Ubuntu; elsewhere says in one line what is missing.
set -eu
cd "$(dirname "$0")/.."

# One command per package: the package is missing when its command is.
missing=
need() { # need COMMAND PACKAGE...
    command=$1
    shift
    PATH=$PATH:/usr/sbin:/sbin command -v "$command" >/dev/null 2>&1 || missing="$missing $*"
}
if ! command -v docker >/dev/null 2>&1 || ! docker info >/dev/null 2>&1; then
    need podman podman
    need runc runc
    need iptables iptables
    [ -x /usr/lib/podman/netavark ] || [ -x /usr/libexec/podman/netavark ] || missing="$missing netavark aardvark-dns"
fi
need mmdebstrap mmdebstrap
need ssh openssh-client
need ssh-keygen openssh-client
need gpg gnupg
need apt-ftparchive apt-utils
need dpkg-deb dpkg
need ip iproute2
need nsenter util-linux
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing$missing"
    apt-get -qq update
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $missing >/dev/null
else
    echo "setup: the lab rack needs$missing; install them (Debian, Ubuntu: sudo apt-get install$missing)" >&2
    exit 1
fi
