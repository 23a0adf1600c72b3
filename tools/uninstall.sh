#!/usr/bin/env bash
# Takes away what `cmake --install` put under a prefix from a build folder: its files, then the folders that it made, if nothing else is
# in them. Says what it took. Usage: uninstall.sh BUILD PREFIX, with the DESTDIR of the installation in the environment.
set -euo pipefail
list=$1/installed.txt # cmake/install.cmake writes it
top=${DESTDIR:-}$(realpath -ms "$2")
top=${top%/}

files=() folders=() others=()
if [ -e "$list" ]; then
    while IFS= read -r path; do
        case $path in
        "$top/" | "$top"/*/) folders+=("$path") ;;
        "$top"/*) files+=("$path") ;;
        */) case $top/ in "$path"*) folders+=("$path") ;; *) others+=("$path") ;; esac ;; # one that the prefix lies in
        *) others+=("$path") ;;
        esac
    done <"$list"
fi
if [ ${#files[@]} = 0 ]; then
    echo "uninstall: nothing is known to be installed under $top; PREFIX and DESTDIR say where it is" >&2
    exit 1
fi

taken=0 kept=0 empty=0
for path in "${files[@]}"; do
    if [ ! -e "$path" ] && [ ! -L "$path" ]; then
        echo "was not there: $path"
    elif rm -f -- "$path"; then
        echo "removed: $path"
        taken=$((taken + 1))
    else
        kept=$((kept + 1))
    fi
done
if [ "$kept" != 0 ]; then
    echo "uninstall: $kept files are still there" >&2
    exit 1
fi
while IFS= read -r path; do # what lies in a folder comes before it
    if [ -n "$path" ] && rmdir -- "$path" 2>/dev/null; then
        echo "removed: $path"
        empty=$((empty + 1))
    fi
done < <(printf '%s\n' "${folders[@]}" | sort -r)
rm -f "$list"
[ ${#others[@]} = 0 ] || printf '%s\n' "${others[@]}" >"$list"
echo "uninstall: $taken files and $empty folders removed"
