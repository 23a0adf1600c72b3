#!/usr/bin/env bash
# Makes the pictures of README.md and docs/profiler.md: pages that quern writes, as headless Chromium shows them.
# Usage: docs/pictures/make.sh [QUERN [TRACES]]
# TRACES is a folder of PyTorch's traces, by runs; the pictures of a GPU are made from it. Those in this folder show the two
# ResNet-50 runs of pytorch/kineto, tb_plugin/samples (BSD-3-Clause).
set -euo pipefail
cd "$(dirname "$0")/../.."
quern=${1:-build/quern}
traces=${2:-}
out=docs/pictures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shot PAGE TAB SIZE PICTURE: the tab of a page; 64 colours are enough for it, and a quarter of the bytes.
shot() {
    chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync --hide-scrollbars \
        --user-data-dir="$work/browser" --window-size="$3" --virtual-time-budget=8000 --screenshot="$work/shot.png" \
        "file://$1#tab=$2" >/dev/null 2>&1
    pngquant --force --strip --output "$out/$4.png" 64 "$work/shot.png"
    optipng -quiet -o5 "$out/$4.png"
}

"$quern" run -m models/stories.gguf -p "Once upon a time" --seed 7 --profile="$work/demo" >/dev/null
"$quern" profile html "$work/demo" -o "$work/demo.html"
shot "$work/demo.html" roofline 1280,860 roofline
shot "$work/demo.html" modules 1280,600 modules

"$quern" train --example stories --steps 12 --seed 1 --profile="$work/train" >/dev/null
"$quern" profile html "$work/train" -o "$work/train.html"
shot "$work/train.html" overview 1280,620 overview
shot "$work/train.html" memory 1280,620 memory

if [ -n "$traces" ]; then
    "$quern" profile html "$traces" -o "$work/gpu.html"
    shot "$work/gpu.html" overview 1280,860 gpu-overview
    shot "$work/gpu.html" operators 1280,700 gpu-operators
    shot "$work/gpu.html" kernels 1280,700 gpu-kernels
    shot "$work/gpu.html" timeline 1280,560 gpu-timeline
    shot "$work/gpu.html" diff 1280,620 gpu-diff
fi
du -bc "$out"/*.png
