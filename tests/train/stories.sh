#!/bin/sh
# The storyteller in short: a few steps make the loss fall, one and two threads make the same file, which opens as a model with the
# same loss (quern train checks that itself); and the trained model of models/ predicts tales and tells one, the same for any threads.
# usage: tests/train/stories.sh QUERN
set -eu
quern=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for threads in 1 2; do
    "$quern" train --example stories --steps 20 --threads $threads -o "$dir/$threads.gguf" --curve "$dir/$threads.csv" >"$dir/$threads.txt"
    cat "$dir/$threads.txt"
done
cmp "$dir/1.gguf" "$dir/2.gguf"
cmp "$dir/1.csv" "$dir/2.csv"
awk '/^loss/ { fell = $2 < 5.5 } END { exit !fell }' "$dir/1.txt" # knowing nothing is 6.7

# Going on from a file begins where it ended: two small steps leave the loss near that, not near chance.
"$quern" train --example stories --from "$dir/1.gguf" --seed 2 --steps 2 --rate 1e-4 | tee "$dir/from.txt"
awk '/^loss/ { near = $2 < 5.5 } END { exit !near }' "$dir/from.txt"

"$quern" train --example stories --seed 12345 --tell 20 >"$dir/tales.txt"
"$quern" eval -m models/stories.gguf -f "$dir/tales.txt" | tee "$dir/eval.txt"
awk '/^perplexity/ { good = $2 < 2.5 } END { exit !good }' "$dir/eval.txt"

for threads in 1 2; do
    "$quern" run -m models/stories.gguf -p "Once upon a time" --temp 0 -t $threads >"$dir/tale$threads.txt"
done
cat "$dir/tale1.txt"
cmp "$dir/tale1.txt" "$dir/tale2.txt"
[ "$(wc -w <"$dir/tale1.txt")" -gt 40 ]
