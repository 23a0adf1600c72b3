#!/usr/bin/env bash
# Installs what the build and the tests need and this machine lacks. On Debian and its kin it asks apt; elsewhere it prints the
# list. Does nothing, quickly, when nothing is missing. `bootstrap.sh build` looks only for what plain `make` needs,
# `bootstrap.sh demo` for what that build needs without Vulkan, and what makes the profiler's page.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

missing=()
extra=() # makes the tests reach further, but they run without
need() { # package, then a command that only it brings
    have "$2" || missing+=("$1")
}

has_header() { echo "#include <$1>" | cc -DPCRE2_CODE_UNIT_WIDTH=8 -E - >/dev/null 2>&1; }

need build-essential cc
need build-essential make
need cmake cmake
need ninja-build ninja
has_header zlib.h || missing+=(zlib1g-dev)
has_header pcre2.h || extra+=(libpcre2-dev) # what tokenizers cut texts with; without, the build leaves those out and says so
has_header utf8proc.h || extra+=(libutf8proc-dev)
if [ "${1:-all}" != demo ]; then # without these two the build leaves Vulkan out and says so
    have glslc || extra+=(glslc)
    has_header vulkan/vulkan_core.h || extra+=(libvulkan-dev)
fi
if [ "${1:-all}" != build ]; then # bundle the profiler's page, of packages that come over TLS
    have node || extra+=(nodejs)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || extra+=(ca-certificates)
fi
if [ "${1:-all}" = all ]; then
    need build-essential g++
    need clang clang
    need clang-tidy clang-tidy
    need clang-format clang-format
    need llvm llvm-symbolizer
    need python3 python3
    need pkg-config pkg-config
    have npm || extra+=(npm) # the page's types and its tests in a browser
    has_header microhttpd.h || extra+=(libmicrohttpd-dev)
    have chromium || have chromium-browser || have google-chrome || extra+=(chromium) # shows that page to the tests
    echo '#include <cmocka.h>' | cc -include stdarg.h -include stddef.h -include stdint.h -include setjmp.h -E - \
        >/dev/null 2>&1 || missing+=(libcmocka-dev)
    echo 'int main(void) { return 0; }' | clang -fsanitize=memory -x c -o /dev/null - >/dev/null 2>&1 || extra+=(libclang-rt-dev)
    [ -e /usr/share/i18n/locales/ps_AF ] || extra+=(locales) # decimal points that are none
    # a Vulkan device on the CPU, and the layer that checks how it is used
    ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 || extra+=(libvulkan1 mesa-vulkan-drivers)
    [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ] || extra+=(vulkan-validationlayers)
    if [ "$(uname -m)" = x86_64 ]; then
        have aarch64-linux-gnu-gcc || extra+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
        have qemu-aarch64-static || extra+=(qemu-user-static)
        [ -e /usr/lib/aarch64-linux-gnu/libz.a ] || extra+=(zlib1g-dev:arm64)
        [ -e /usr/lib/aarch64-linux-gnu/libpcre2-8.a ] || extra+=(libpcre2-dev:arm64)
        [ -e /usr/lib/aarch64-linux-gnu/libutf8proc.a ] || extra+=(libutf8proc-dev:arm64)
    fi
fi
[ $((${#missing[@]} + ${#extra[@]})) = 0 ] && exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if ! have apt-get || ! "${as_root[@]}" true 2>/dev/null; then
    echo "bootstrap: please install these packages (Debian names): ${missing[*]} ${extra[*]}"
    [ ${#missing[@]} = 0 ] # the extra ones are not worth stopping for
    exit
fi

install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null
}
echo "bootstrap: installing ${missing[*]} ${extra[*]}"
case " ${extra[*]} " in *:arm64*) "${as_root[@]}" dpkg --add-architecture arm64 ;; esac
"${as_root[@]}" apt-get update || echo "bootstrap: apt-get update failed; trying with the lists there are"
[ ${#missing[@]} = 0 ] || install "${missing[@]}"
[ ${#extra[@]} = 0 ] || install "${extra[@]}" || echo "bootstrap: no ${extra[*]} here; some tests will be skipped"
