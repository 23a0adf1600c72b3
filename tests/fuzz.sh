#!/usr/bin/env bash
# New inputs for one fuzzer, begun from its corpus: tests/fuzz.sh FUZZER CORPUS SECONDS. What it finds stays in its build's folder `found`.
set -euo pipefail
fuzzer=$1 corpus=$2 seconds=$3
found=$QUERN_TEST_BUILD/found
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$found"
"$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -artifact_prefix="$found/" -print_final_stats=1 "$work" "$corpus" 2>&1 | tail -n 40
