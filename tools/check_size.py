#!/usr/bin/env python3
"""Budgets: 600 lines a file (1000 when its first ten lines hold `size-reason: ...`), 60 lines a function, 153 public functions.

Functions are found by matching braces after comments, strings and preprocessor lines are blanked; that is exact for code that
clang-format has seen. Exits 1 and prints each offence.
"""
import os
import re
import sys

FILE_LINES, FILE_LINES_WITH_REASON, FUNCTION_LINES = 600, 1000, 60
# 150 were there when qn_sampler_reset came: without it a program makes a new sampler for each answer, which reads the grammar again
# and draws the same random numbers again. And qn_device_describe: without it a program that opened a device has to open all of them
# again to learn what it got. And qn_nearest_names: what the library says of a mistyped name the command says too, of its own lists.
PUBLIC_FUNCTIONS = 153
TOPS = ("include", "src", "apps", "tests", "fuzz", "tools")
ENDINGS = (".c", ".h", ".def", ".py", ".sh")
TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
NAME = re.compile(r"(\w+)\s*\(")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def functions(text):
    """Yields (name, first line, number of lines) of each function body at the outermost level."""
    text = DIRECTIVE.sub(blank, TOKENS.sub(blank, text))
    text = re.sub(r"extern\s+\{", lambda match: " " * len(match.group(0)), text)  # extern "C" {, its string blanked
    depth, start, opened = 0, 0, None
    for at, char in enumerate(text):
        if char == "{":
            if depth == 0:
                head = text[start:at]
                name = NAME.search(head) if head.rstrip().endswith(")") else None
                opened = (name.group(1), start + len(head) - len(head.lstrip())) if name else None
            depth += 1
        elif char == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if opened:
                    first = text.count("\n", 0, opened[1]) + 1
                    yield opened[0], first, text.count("\n", 0, at) + 2 - first
                start, opened = at + 1, None
        elif char == ";" and depth == 0:
            start = at + 1


def check_file(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = text.count("\n")
    reason = any("size-reason:" in line for line in text.split("\n")[:10])
    limit = FILE_LINES_WITH_REASON if reason else FILE_LINES
    if lines > limit:
        yield f"{path}: {lines} lines, at most {limit}"
    if path.endswith((".c", ".h")):
        for name, first, count in functions(text):
            if count > FUNCTION_LINES:
                yield f"{path}:{first}: {name} has {count} lines, at most {FUNCTION_LINES}"


def public_functions():
    count = 0
    for name in sorted(os.listdir("include/quern")):
        if name.endswith(".h"):
            with open(os.path.join("include/quern", name), encoding="utf-8") as file:
                text = TOKENS.sub(blank, file.read())
            count += len(re.findall(r"^\s*QN_API\b", text, re.M))
    return count


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    faults, files = [], 0
    for top in TOPS:
        for folder, subfolders, names in os.walk(top):
            subfolders.sort()
            for name in sorted(names):
                if name.endswith(ENDINGS):
                    files += 1
                    faults += check_file(os.path.join(folder, name))
    public = public_functions()
    if public > PUBLIC_FUNCTIONS:
        faults.append(f"include/quern: {public} public functions, at most {PUBLIC_FUNCTIONS}")
    print("\n".join(faults) if faults else f"sizes: {files} files and {public} public functions within budget")
    return 1 if faults else 0


sys.exit(main())
