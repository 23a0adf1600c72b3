#!/usr/bin/env bash
# What the command prints of its tables: the pages in docs/ are as fresh as the tables, the JSON is well formed, the ledgers of the four
# systems resolve every name, and the drawing of the dispatcher has an edge for each guard. Usage: generated.sh QUERN
set -euo pipefail
quern=$1
"$quern" ops --markdown | diff -u docs/ops.md -
"$quern" ops --seed all --markdown | diff -u docs/families.md -
"$quern" ops --json >"$QUERN_TEST_BUILD/ops.json"
python3 tests/check_ops_json.py "$QUERN_TEST_BUILD/ops.json"
resolved=$("$quern" ops --seed all | grep -cE '^(emel: 94 of 94|rlx: 63 of 63|rlx_steps: 66 of 66|rlx_more: 32 of 32|mlx: 97 of 97) resolved')
[ "$resolved" = 5 ] || { echo "only $resolved of 5 ledgers resolve every name"; exit 1; }
edges=$("$quern" ops --mermaid | grep -c 'ready --> ready')
[ "$edges" = 190 ] || { echo "the dispatcher's drawing has $edges edges back to ready, not 190"; exit 1; }
