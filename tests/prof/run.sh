#!/usr/bin/env bash
# The profiler against the reference's answers: tests/prof/run.sh [quern [traces [part...]]]. Skips where there is no data.
set -uo pipefail
cd "$(dirname "$0")/../.."
quern=${1:-build/quern}
traces=${2:-../shared/data/traces}
if [ ! -d "$traces" ]; then
    echo "skip: no $traces beside this checkout"
    exit 77
fi
exec python3 tests/prof/check_traces.py "$quern" "$traces" "${@:3}"
