#!/usr/bin/env bash
# tools/plain_core.sh with made-up machines: nothing where name and HWCAP agree, else a library that does what it says, here.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

machine() { # part, features
    printf 'processor\t: 0\nFeatures\t: %s\nCPU implementer\t: 0x41\nCPU part\t: %s\n\n' "$2" "$1"
}
nothing() { # what, cpuinfo
    [ -z "$(tools/plain_core.sh "$folder/out" "$2")" ] || { echo "$1: settings where none are needed" >&2; exit 1; }
}
machine 0xd40 'fp asimd asimddp sve i8mm' >"$folder/v1"
machine 0xd0c 'fp asimd asimddp' >"$folder/n1"
machine 0xd40 'fp asimd asimddp i8mm' >"$folder/hidden"
nothing "a V1 with SVE" "$folder/v1"
nothing "an N1" "$folder/n1"
[ "$(uname -m)" = aarch64 ] || nothing "this machine" /proc/cpuinfo

settings=$(tools/plain_core.sh "$folder/out" "$folder/hidden")
grep -q MESA_SHADER_CACHE_DISABLE=true <<<"$settings"
grep -q '0xd0c' "$folder/out/cpuinfo"
# cat opens with open or openat, grep as well, python with open64 and with fopen through libc.
(eval "$settings" && cat /proc/cpuinfo) | cmp - "$folder/out/cpuinfo"
(eval "$settings" && cat /proc/self/comm) | grep -qx cat
(eval "$settings" && python3 -c '
import ctypes
libc = ctypes.CDLL(None)
for name in ("fopen", "fopen64"):
    f = getattr(libc, name)
    f.restype = ctypes.c_void_p
    stream, line = ctypes.c_void_p(f(b"/proc/cpuinfo", b"r")), ctypes.create_string_buffer(4096)
    n = libc.fread(line, 1, 4096, stream)
    assert b"0xd0c" in line.raw[:n], name
assert "0xd0c" in open("/proc/cpuinfo").read()
open("'"$folder"'/made", "w").write("x")
')
[ "$(cat "$folder/made")" = x ]
echo "plain core: the copy is what they see"
