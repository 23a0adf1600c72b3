#!/usr/bin/env bash
# The Debian package in a Debian that has nothing else: apt installs it with what it depends on, its command tells a tale and makes a
# page, and apt takes it away again. Usage: chroot.sh PACKAGE.deb. Exits 77, with a sentence, without root, debootstrap or network.
set -euo pipefail
deb=$(realpath "$1")
repo=$(cd "$(dirname "$0")/../.." && pwd)
suite=bookworm

skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "a chroot takes root"
command -v debootstrap >/dev/null || skip "debootstrap is not here"
command -v apt-get >/dev/null || skip "apt is not here, which knows where Debian's packages are"
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk -v s="$suite" '$2 == s { print $1; exit }')
[ -n "$mirror" ] || skip "apt has no source of Debian $suite"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/lib/apt/apt-helper download-file "${mirror%/}/dists/$suite/InRelease" "$work/InRelease" >/dev/null 2>&1 || skip "the mirror is out of reach"

# A proxy that apt uses is the way for debootstrap too, and for apt in there.
apt-config dump | grep -E '^Acquire::https?::Proxy ' >"$work/proxy" || true
proxy=$(sed -n 's/^Acquire::http::Proxy "\(.*\)";$/\1/p' "$work/proxy")
[ -z "$proxy" ] || export http_proxy=$proxy
root=$work/root
debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
cp "$work/proxy" "$root/etc/apt/apt.conf.d/90proxy"
cp "$deb" "$root/tmp/quern.deb"
cp "$repo/models/stories.gguf" "$root/tmp/"
cat >"$root/tmp/a.pt.trace.json" <<'TRACE'
{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "matmul", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}]}
TRACE

inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
fail() { echo "chroot: $*"; exit 1; }

inside apt-get install -y --no-install-recommends /tmp/quern.deb >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "apt does not install it"; }
inside quern --version
inside ldconfig -p | grep -q "libquern.so.0 " || fail "the linker does not find libquern.so.0"
said=$(inside sh -c 'cd /tmp && quern run -m stories.gguf -p "Once upon a time" -n 20' 2>"$work/err") || fail "run: $(cat "$work/err")"
case $said in "Once upon a time"?*) ;; *) fail "run says: $said" ;; esac
grep -q ", then 20 in " "$work/err" || fail "run made other than 20 tokens: $(cat "$work/err")"
if inside quern devices --json | grep -q '"part": "profile html"'; then
    echo "passed over: this package has no page"
else
    inside quern profile html /tmp/a.pt.trace.json -o /tmp/page.html
    grep -qi "<html" "$root/tmp/page.html" || fail "the page is none"
fi
inside zcat /usr/share/man/man1/quern.1.gz | grep -q '^\.TH QUERN 1 ' || fail "no man page"
completed=$(inside bash -c 'source /usr/share/bash-completion/completions/quern; COMP_WORDS=(quern cha) COMP_CWORD=1; _quern; echo "${COMPREPLY[@]}"')
[ "$completed" = chat ] || fail "the completion of 'quern cha' is '$completed'"
[ -f "$root/usr/share/doc/quern/copyright" ] || fail "no copyright"

inside dpkg -L quern | sed "s#^#$root#" >"$work/files"
inside apt-get remove -y quern >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "apt does not remove it"; }
while IFS= read -r path; do
    [ ! -f "$path" ] || fail "left: ${path#"$root"}"
done <"$work/files"
echo "chroot: $said"
