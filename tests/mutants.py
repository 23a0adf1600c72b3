#!/usr/bin/env python3
"""Draws one-line mutants of the sources from a seed and says which suite finds each: do the tests test?

    mutants.py --list [--seed N] [--count N]       the mutants that the seed draws
    mutants.py --tree FOLDER [--seed N] [--count N] [--only K,...] [--lanes PRESET:FLAVOUR,...] [--out CSV]

FOLDER is a clone of its own, whose sources are changed and put back; the presets of the lanes are configured there. Each mutant is built
and runs through the suites of the lanes in turn to its first failure; suites that fail without a change are left out. One that does not compile is drawn anew, which --list cannot know; so is a number given
behind --same K,..., for a mutant that was shown to change nothing. tests/mutants.csv keeps what was found.
"""
import argparse
import csv
import glob
import os
import random
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AREAS = (  # what a mutant is drawn from, in turn
    ("kernels", ("src/cpu/k*.c",)),
    ("guards", ("src/op/*.c",)),
    ("views", ("src/prof/view*.c", "src/tensor/*.c")),
    ("page", ("web/src/*.ts", "web/src/*/*.ts")),
    ("text", ("src/text/*.c",)),
    ("model", ("src/model/*.c",)),
)
SWAPS = ((r"<=", "<"), (r">=", ">"), (r"(?<![<>=!-])<(?![<=])", "<="), (r"(?<![>=-])>(?![>=])", ">="), (r"==", "!="), (r"!=", "=="),
         (r"&&", "||"), (r"\|\|", "&&"), (r"(?<= )\+(?= )", "-"), (r"(?<= )-(?= )", "+"), (r"(?<= )\*(?= )", "+"), (r"(?<![.\w])0(?![.\w])", "1"),
         (r"(?<![.\w])1(?![.\w])", "2"), (r"(?<![.\w])2(?![.\w])", "3"), (r"\bbreak\b", "continue"), (r"\btrue\b", "false"), (r"\+= ", "-= "), (r"\bmin\b", "max"))
NOISE = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/|//.*|`[^`]*`')


def sites(path):
    """Every (line number, line, mutated line) of a file."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    found, in_comment = [], False
    for number, line in enumerate(lines, 1):
        opens, closes = line.rfind("/*"), line.rfind("*/")
        was_in, in_comment = in_comment, opens > closes or (in_comment and closes < 0)
        bare = line.strip()
        if was_in or not bare or bare.startswith(("#", "//", "/*", "*", "import", "enum", "typedef")) or line[0] not in " \t":
            continue
        code = NOISE.sub(lambda match: "\0" * len(match.group(0)), line)
        for pattern, to in SWAPS:
            for match in re.finditer(pattern, code):
                found.append((number, line, line[:match.start()] + to + line[match.end():]))
    return found


def draw(seed):
    """Mutants without end: (area, file, line number, line, mutated line). A file is as likely as another, and so is a line in it."""
    rng = random.Random(seed)
    files = [(area, sorted({os.path.relpath(p, ROOT) for pattern in patterns for p in glob.glob(os.path.join(ROOT, pattern))}))
             for area, patterns in AREAS]
    turn = 0
    while True:
        area, names = files[turn % len(files)]
        turn += 1
        while True:
            path = rng.choice(names)
            choices = sites(path)
            if choices:
                yield (area, path, *rng.choice(choices))
                break


def folder_of(tree, preset):
    return os.path.join(tree, "build") if preset == "release" else os.path.join(tree, "build", preset)


def baseline(tree, flavours, names):
    """Suites to leave out: those that look at the source and would see any change, and those that fail without one."""
    without = {}
    for preset, flavour in flavours:
        without[flavour] = {"format", "testing-page", "sizes", "layers", "runner", *names}
        if not builds(tree, folder_of(tree, preset)):
            sys.exit(f"{tree} does not build: configure {preset} there first")
        broken = failures(tree, folder_of(tree, preset), flavour, without[flavour], False)
        if broken:
            print(f"{flavour}: these fail without a change and are left out: {' '.join(broken)}", flush=True)
        without[flavour].update(broken)
    return without


def replace_line(tree, path, number, to):
    full = os.path.join(tree, path)
    with open(full, encoding="utf-8") as file:
        lines = file.read().split("\n")
    lines[number - 1] = to
    with open(full, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def builds(tree, folder):
    done = subprocess.run(["cmake", "--build", folder, "-j", str(os.cpu_count() or 1)], cwd=tree, capture_output=True, text=True)
    return done.returncode == 0


def failures(tree, folder, flavour, without, stop):
    """The suites of a flavour that fail, in the order in which they did; with `stop`, only the first."""
    words = ["ctest", "--test-dir", folder, "-L", f"^lane-{flavour}$", "-E", "^(" + "|".join(sorted(without)) + ")$",
             "-j", str(os.cpu_count() or 1), "--timeout", "600"] + ["--stop-on-failure"] * stop
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return re.findall(r"Test +#\d+: (\S+) \.*\**\** *(?:Failed|Exception|Timeout|Not Run)", done.stdout)


def try_mutant(tree, flavours, without, mutant):
    """Which flavour and suite find it; ("", "") if none does; None when it does not compile."""
    area, path, number, line, to = mutant
    replace_line(tree, path, number, to)
    try:
        for preset, flavour in flavours:
            folder = folder_of(tree, preset)
            if not builds(tree, folder):
                return None
            found = failures(tree, folder, flavour, without[flavour], True)
            if found:
                return flavour, found[0]
        return "", ""
    finally:
        replace_line(tree, path, number, line)


def main():
    parser = argparse.ArgumentParser(add_help=True, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--tree")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--same", default="")
    parser.add_argument("--lanes", default="test:quick", help="pairs PRESET:FLAVOUR of tests/lanes.txt, with commas")
    parser.add_argument("--without", default="", help="suites that are left out, with commas")
    parser.add_argument("--out")
    options = parser.parse_args()
    only = {int(k) for k in options.only.split(",") if k}
    same = {int(k) for k in options.same.split(",") if k}
    flavours = [tuple(pair.split(":")) for pair in options.lanes.split(",")]
    without = {} if options.list else baseline(options.tree, flavours, [name for name in options.without.split(",") if name])
    rows, missed = [], 0
    for k, mutant in enumerate(draw(options.seed), 1):
        if len(rows) == options.count or (only and k > max(only)):
            break
        area, path, number, line, to = mutant
        if options.list or k in same or (only and k not in only):
            if options.list:
                print(f"{k}\t{area}\t{path}:{number}\n    - {line.strip()}\n    + {to.strip()}")
                rows.append(k)
            continue
        start = time.monotonic()
        found = try_mutant(options.tree, flavours, without, mutant)
        if found is None:
            print(f"{k}: {path}:{number} does not compile", flush=True)
            continue
        rows.append((k, area, f"{path}:{number}", line.strip(), to.strip(), *found))
        missed += not found[0]
        print(f"{k}: {path}:{number}: {'found by ' + ': '.join(found) if found[0] else 'NOT FOUND'} ({time.monotonic() - start:.0f} s)"
              f"\n    - {line.strip()}\n    + {to.strip()}", flush=True)
    if options.out:
        with open(options.out, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("number", "area", "place", "line", "mutant", "found in", "found by"))
            writer.writerows(rows)
    if not options.list:
        print(f"{len(rows) - missed} of {len(rows)} mutants were found")
    return 0


sys.exit(main())
