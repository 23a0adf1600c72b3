#!/usr/bin/env bash
# Installs what the build and the tests need and this machine lacks. On Debian and its kin it asks apt; elsewhere it prints the list.
# When nothing is missing it does nothing, quickly. What it looks for depends on its word, and each word includes those before it:
#   demo   what `make demo` needs: a compiler, and what bundles the profiler's page
#   build  what plain `make` can use: the server of that page and Vulkan as well
#   quick  what `make test` needs: a test library, a browser, a Vulkan device on the CPU
#   all    what the deep lanes need, and `make lint`: other compilers, another architecture, emulators (the default)
set -euo pipefail
wanted=${1:-all}
case $wanted in
    demo | build | quick | all) ;;
    *) echo "bootstrap: there is no '$wanted': demo, build, quick or all" >&2; exit 2 ;;
esac

have() { command -v "$1" >/dev/null 2>&1; }
has_header() { echo "#include <$1>" | cc -DPCRE2_CODE_UNIT_WIDTH=8 -E - >/dev/null 2>&1; }
at_least() { # whether this word, or one that includes it, was given
    local words=" demo build quick all "
    [[ ${words#*" $1"} == *" $wanted "* || $1 = "$wanted" ]]
}

missing=() # without these nothing is built or tested
extra=()   # without one of these the build leaves something out, or a test is skipped, and says so
need() { # package, then a command that only it brings
    have "$2" || missing+=("$1")
}

need build-essential cc
need build-essential make
need cmake cmake
need ninja-build ninja
has_header zlib.h || missing+=(zlib1g-dev)
has_header pcre2.h || extra+=(libpcre2-dev) # what tokenizers cut texts with
has_header utf8proc.h || extra+=(libutf8proc-dev)
have node || extra+=(nodejs) # bundles the profiler's page, of packages that come over TLS
[ -e /etc/ssl/certs/ca-certificates.crt ] || extra+=(ca-certificates)
if at_least build; then
    have glslc || extra+=(glslc)
    has_header vulkan/vulkan_core.h || extra+=(libvulkan-dev)
    has_header microhttpd.h || extra+=(libmicrohttpd-dev) # serves the profiler's page
fi
if at_least quick; then
    need build-essential g++
    need python3 python3
    have pkg-config || extra+=(pkg-config)
    have clang-format-14 || have clang-format || extra+=(clang-format)
    have npm || extra+=(npm) # the page's types and its tests in a browser
    have chromium || have chromium-browser || have google-chrome || extra+=(chromium) # shows that page to the tests
    echo '#include <cmocka.h>' | cc -include stdarg.h -include stddef.h -include stdint.h -include setjmp.h -E - \
        >/dev/null 2>&1 || extra+=(libcmocka-dev)
    # a Vulkan device on the CPU, and the layer that checks how it is used
    ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 || extra+=(libvulkan1 mesa-vulkan-drivers)
    [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ] || extra+=(vulkan-validationlayers)
fi
if at_least all; then
    have clang || extra+=(clang)
    have clang-tidy || extra+=(clang-tidy)
    have llvm-symbolizer || extra+=(llvm)
    echo 'int main(void) { return 0; }' | clang -fsanitize=memory -x c -o /dev/null - >/dev/null 2>&1 || extra+=(libclang-rt-dev)
    [ -e /usr/share/i18n/locales/ps_AF ] || extra+=(locales) # decimal points that are none
    have file || extra+=(file) # tells the packager which files are programs
    have debootstrap || extra+=(debootstrap)                # a fresh system for the package to be installed in
    if [ "$(uname -m)" = x86_64 ]; then
        have aarch64-linux-gnu-gcc || extra+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
        have qemu-aarch64-static || extra+=(qemu-user-static)
        [ -e /usr/lib/aarch64-linux-gnu/libz.a ] || extra+=(zlib1g-dev:arm64)
        [ -e /usr/lib/aarch64-linux-gnu/libpcre2-8.a ] || extra+=(libpcre2-dev:arm64)
        [ -e /usr/lib/aarch64-linux-gnu/libutf8proc.a ] || extra+=(libutf8proc-dev:arm64)
    fi
fi
[ $((${#missing[@]} + ${#extra[@]})) = 0 ] && exit 0

# Whether the build and the tests can go on with what there is.
go_on() {
    [ ${#missing[@]} = 0 ] || for command in cc cmake ninja; do have $command || return 1; done
}

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if ! have apt-get || ! "${as_root[@]}" true 2>/dev/null; then
    echo "bootstrap: nothing can be installed here without root. These packages are missing (Debian names): ${missing[*]} ${extra[*]}"
    go_on
    exit
fi

install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null
}
echo "bootstrap: installing ${missing[*]} ${extra[*]}"
case " ${extra[*]} " in *:arm64*) "${as_root[@]}" dpkg --add-architecture arm64 ;; esac
"${as_root[@]}" apt-get update || echo "bootstrap: apt-get update failed; the lists that are here are tried"
if install "${missing[@]}" "${extra[@]}"; then exit 0; fi
echo "bootstrap: not all of these can be had together; each is tried by itself"
for package in "${missing[@]}" "${extra[@]}"; do
    install "$package" || echo "bootstrap: $package cannot be installed; what needs it is left out or skipped"
done
go_on
