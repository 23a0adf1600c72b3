#!/usr/bin/env bash
# The profiler's page: types, then every tab in a real Chromium. tests/web/run.sh [quern [traces [folder]]]. Skips, saying why, what
# cannot be tested here. Screenshots stay in shots of the folder, build/web-test if none is named.
set -euo pipefail
cd "$(dirname "$0")/../.."
quern=$(realpath "${1:-build/quern}")
traces=$(realpath -m "${2:-../shared/data/traces}")
work=$(realpath -m "${3:-build/web-test}")

skip() {
    echo "skip: $1"
    exit 77
}
command -v npm >/dev/null || skip "no npm"
mkdir -p "$work"
cp -r web/. "$work/"
if ! cmp -s web/package-lock.json "$work/installed.json"; then
    (cd "$work" && npm ci --no-audit --no-fund) || skip "npm cannot get its packages"
    cp web/package-lock.json "$work/installed.json"
fi
(cd "$work" && npm run --silent check)
echo "types: clean"
grep -qE '"resolved"|https?://' web/package-lock.json && { echo "the lock file names a host"; exit 1; }

for name in chromium chromium-browser google-chrome; do
    [ -n "${CHROMIUM:-}" ] || CHROMIUM=$(command -v "$name" || true)
done
[ -n "${CHROMIUM:-}" ] || skip "no Chromium"
[ -d "$traces" ] || skip "no $traces beside this checkout"
probe=$("$quern" profile html "$traces/synthetic/cpu_only" 2>&1 >/dev/null) || {
    grep -q "built without" <<<"$probe" && skip "$probe"
    echo "$probe"
    exit 1
}
export CHROMIUM WEB_WORK=$work QUERN=$quern TRACES=$traces
failed=0
for part in tests/web/*.test.mjs; do
    node "$part" || failed=1
done
exit $failed
