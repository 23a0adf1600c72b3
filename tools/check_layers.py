#!/usr/bin/env python3
"""Folders of src/ depend one way only: a file may include its own folder and folders of a lower number.

apps/ may include the public header and its own files; include/ may include nothing of src/; tests/ are free. Names of source
files are unique across src/ and apps/, so that a log line or an object file names one place. Exits 1 and prints each offence.
"""
import os
import re
import sys

ORDER = [
    ["base"],
    ["thread", "text", "tensor"],
    ["op"],
    ["ir", "device"],
    ["pass", "grad", "format", "dist", "cpu", "vulkan"],
    ["plan"],
    ["run"],
    ["model", "train", "prof"],
    ["serve"],
]
LAYER = {name: number for number, names in enumerate(ORDER, 1) for name in names}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ENDINGS = (".c", ".h", ".def")


def files_under(top):
    for folder, subfolders, names in os.walk(top):
        subfolders.sort()
        for name in sorted(names):
            if name.endswith(ENDINGS):
                yield os.path.join(folder, name)


def includes(path):
    """Yields (line number, quoted or not, the path as written)."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match.group(1) == '"', match.group(2)


def resolve(path, quoted, written):
    """The file of this tree an include means, or None for one of the system's."""
    places = [os.path.dirname(path)] if quoted else []
    for place in places + ["src", "include"]:
        candidate = os.path.normpath(os.path.join(place, written))
        if os.path.isfile(candidate):
            return candidate
    return None


def fault(path, quoted, written):
    """Why this include is not allowed, or None."""
    target = resolve(path, quoted, written)
    if target is None:
        return f"no such file in the tree: {written}" if quoted else None
    here, there = path.split(os.sep), target.split(os.sep)
    if there[0] == "include":
        return None
    if here[0] in ("apps", "include"):
        return None if here[0] == there[0] == "apps" else f"{here[0]}/ may use the public header only, not {target}"
    if there[0] != "src":
        return f"src/ must not include {target}"
    if here[1] == there[1]:
        return None
    if LAYER[here[1]] <= LAYER[there[1]]:
        return f"{here[1]} (layer {LAYER[here[1]]}) must not include {target} (layer {LAYER[there[1]]})"
    return None


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    faults, seen = [], {}
    for folder in sorted(os.listdir("src")):
        if os.path.isdir(os.path.join("src", folder)) and folder not in LAYER:
            faults.append(f"src/{folder}: not in the order of layers")
    for top in ("include", "src", "apps"):
        for path in files_under(top):
            name = os.path.basename(path)
            if top != "include":
                if name in seen:
                    faults.append(f"{path}: same name as {seen[name]}")
                seen[name] = path
            if top == "src" and path.split(os.sep)[1] not in LAYER:
                continue
            for number, quoted, written in includes(path):
                why = fault(path, quoted, written)
                if why:
                    faults.append(f"{path}:{number}: {why}")
    print("\n".join(faults) if faults else f"layers: {len(seen)} files in order")
    return 1 if faults else 0


sys.exit(main())
