#!/usr/bin/env bash
# Makes the Debian package of a build and tries it in a clean Debian. Usage: deb.sh BUILD
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpack -G DEB --config "$1/CPackConfig.cmake" -B "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
tests/install/chroot.sh "$work"/quern_*.deb
