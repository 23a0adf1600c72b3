#!/bin/sh
# Folders that quern train --example mnist cannot use are turned down with a sentence: too few images for a batch, and none at all.
# usage: tests/train/mnist.sh QUERN
set -eu
quern=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for set in train t10k; do # ten black images of zeros
    { printf '\000\000\010\003\000\000\000\012\000\000\000\034\000\000\000\034' && head -c 7840 /dev/zero; } >"$dir/$set-images-idx3-ubyte"
    { printf '\000\000\010\001\000\000\000\012' && head -c 10 /dev/zero; } >"$dir/$set-labels-idx1-ubyte"
done

says() { # folder, what it must say
    if "$quern" train --example mnist --data "$1" 2>"$dir/said"; then
        echo "$1 was taken" && exit 1
    fi
    cat "$dir/said"
    grep -q "$2" "$dir/said"
}
says "$dir" '10 training and 10 test images, of each at least 64 are needed'
says "$dir/none" 'cannot be opened'
