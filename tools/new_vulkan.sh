#!/usr/bin/env bash
# Unpacks a newer Vulkan driver, loader, validation layers and shader compiler than Debian 12 has into a folder, and installs nothing:
#     tools/new_vulkan.sh FOLDER [SUITE]
# SUITE is a release of Debian, `forky` if none is named. The mirror and the keys are those that this machine's apt uses. Then
#     FOLDER/run PROGRAM...   runs a program of this machine on the new driver (a lavapipe that has cooperative matrices)
#     FOLDER/glslc            compiles shaders, and knows the extensions that the driver knows
#     FOLDER/include          holds the headers
# The new programs come with a C library of their own, by whose loader they are started.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: tools/new_vulkan.sh FOLDER [SUITE]" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
suite=${2:-forky}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
for need in apt-get dpkg gcc; do
    command -v $need >/dev/null || { echo "new_vulkan: there is no $need" >&2; exit 1; }
done
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
[ -n "$mirror" ] || mirror=$(sed -n 's/^deb *\(\[[^]]*\] *\)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)
[ -n "$mirror" ] || { echo "new_vulkan: apt names no mirror here" >&2; exit 1; }

# An apt of its own: its lists, its cache and no installed packages, so that everything down to the C library comes along.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$mirror" "$suite" "$keys" >"$work/list.sources"
own=(-qq -o "Dir::Etc::sourcelist=$work/list.sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
    -o Dir::State::status=/dev/null -o Debug::NoLocking=1)
[ "$(id -u)" != 0 ] || own+=(-o APT::Sandbox::User=root)
apt-get "${own[@]}" update
apt-get "${own[@]}" -y --no-install-recommends --download-only install \
    mesa-vulkan-drivers libvulkan1 libvulkan-dev vulkan-validationlayers glslc spirv-tools libc6
rm -rf "$folder/root"
mkdir "$folder/root"
for package in "$work"/cache/archives/*.deb; do dpkg -x "$package" "$folder/root"; done

libraries=$folder/root/usr/lib/$(gcc -dumpmachine)
here=/usr/lib/$(gcc -dumpmachine)
start=$(find "$libraries" -maxdepth 1 -name 'ld-linux-*.so.*' -print -quit)
[ -n "$start" ] || { echo "new_vulkan: the packages hold no C library" >&2; exit 1; }
ln -sfn root/usr/include "$folder/include"
sed "s#\"library_path\": *\"[^\"]*\"#\"library_path\": \"$libraries/libvulkan_lvp.so\"#" \
    "$folder"/root/usr/share/vulkan/icd.d/lvp_icd*.json >"$folder/lvp.json"
mkdir -p "$folder/layers"
for layer in "$folder"/root/usr/share/vulkan/explicit_layer.d/*validation*.json; do
    sed "s#\"library_path\": *\"\(.*/\)\?\([^/\"]*\)\"#\"library_path\": \"$libraries/\2\"#" "$layer" >"$folder/layers/$(basename "$layer")"
done
{
    printf '#!/bin/sh\nexport VK_DRIVER_FILES=%s VK_ICD_FILENAMES=%s VK_LAYER_PATH=%s\n' "$folder/lvp.json" "$folder/lvp.json" "$folder/layers"
    printf 'exec %s --library-path %s:%s:/lib/%s "$@"\n' "$start" "$libraries" "$here" "$(gcc -dumpmachine)"
} >"$folder/run"
for program in glslc spirv-val; do
    printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$start" "$libraries" "$folder/root/usr/bin/$program" >"$folder/$program"
done
chmod +x "$folder/run" "$folder/glslc" "$folder/spirv-val"
"$folder/glslc" --version >/dev/null || { echo "new_vulkan: its shader compiler does not start" >&2; exit 1; }
