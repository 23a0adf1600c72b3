#!/usr/bin/env bash
# Keeps lavapipe alive on a virtual machine that hides SVE from a core whose name implies it (a Neoverse-V1, say): LLVM goes by the
# name in /proc/cpuinfo, emits SVE, and the process dies of SIGILL. There this makes a copy of cpuinfo in which every core is a
# Neoverse-N1 (part 0xd0c), which has none, builds the library that hands out the copy, and prints the settings to use, as shell:
#     eval "$(tools/plain_core.sh FOLDER [CPUINFO])"
# Anywhere else, where name and HWCAP agree, it prints nothing. CPUINFO is for the test of it.
set -euo pipefail
folder=$1
cpuinfo=${2:-/proc/cpuinfo}

# Arm cores (implementer 0x41) with SVE: Neoverse V1 V2 V3 N2 N3, Cortex A510 A520 A710 A715 A720 A725, X2 X3 X4 X925, A520AE A720AE V3AE.
sve='0xd40|0xd4f|0xd84|0xd49|0xd8e|0xd46|0xd80|0xd47|0xd4d|0xd81|0xd87|0xd48|0xd4e|0xd82|0xd85|0xd88|0xd89|0xd83'
grep -qiE "^CPU part[[:space:]]*:[[:space:]]*($sve)[[:space:]]*$" "$cpuinfo" || exit 0
grep -qE '^Features[[:space:]]*:.* sve( |$)' "$cpuinfo" && exit 0 # the kernel's HWCAP, as words

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sed -E 's/^(CPU part[[:space:]]*:[[:space:]]*).*/\10xd0c/' "$cpuinfo" >"$folder/cpuinfo"
"${CC:-cc}" -std=c11 -O1 -Wall -Wextra -shared -fPIC -o "$folder/plain_core.so" "$(dirname "$0")/plain_core.c" -ldl
printf 'export QUERN_CPUINFO=%q LD_PRELOAD=%q MESA_SHADER_CACHE_DISABLE=true\n' "$folder/cpuinfo" "$folder/plain_core.so"
printf 'export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"\n' # a preloaded library comes before the sanitizer's
