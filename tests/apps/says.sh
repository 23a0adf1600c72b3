#!/bin/sh
# Runs a command that must succeed and print a line of this form: says.sh EXPRESSION COMMAND...
set -eu
form=$1
shift
said=$("$@")
printf '%s\n' "$said"
printf '%s\n' "$said" | grep -qE "$form" || { echo "no line is of the form $form"; exit 1; }
