#!/bin/sh
# An epoch of digits is learnt, and one thread and two come to the same weights and the same loss.
# usage: tests/train/digits.sh QUERN FOLDER-OF-DIGITS
set -eu
for threads in 1 2; do
    said=$("$1" train --example mnist --data "$2" --images 3200 --epochs 1 --threads $threads --require 85)
    echo "$said"
    [ $threads = 1 ] && one=${said%;*} # the rest is the time
done
[ "$one" = "${said%;*}" ] || { echo "two threads did not come to what one came to"; exit 1; }
