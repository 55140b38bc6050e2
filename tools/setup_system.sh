#!/bin/sh
# Install what the lab rack and the tests need from the system: a container engine, the image builder, an InfiniBand
# simulator.
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
# The InfiniBand simulator of the tests.
need ibsim ibsim-utils
need ibnetdiscover infiniband-diags
need opensm opensm
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing$missing"
    apt-get -qq update
    # The package starts a subnet manager on this machine's own fabric; only the tests' simulated ones get one.
    case $missing in *opensm*) systemctl mask --quiet opensm.service 2>/dev/null || ln -sf /dev/null /etc/systemd/system/opensm.service ;; esac
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $missing >/dev/null
else
    echo "setup: the lab rack and its tests need$missing; install them (Debian, Ubuntu: sudo apt-get install$missing)" >&2
    exit 1
fi
