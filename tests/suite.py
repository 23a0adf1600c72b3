#!/usr/bin/env python3
"""Runs one suite for CTest: looks for what it needs, runs it, and notes the seconds of processor time that it took.

    suite.py --build FOLDER --name NAME --budget SECONDS [--stack] [--needs WHAT]... -- COMMAND...

Exit code 77 means skipped; CTest knows it. A line for tests/run.py goes to FOLDER/suite-times/NAME.
"""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
STACK = 576 << 10  # the stack that quern.h lets a caller count on, and 64 KiB for the program itself


def lack(need, build):
    """Why the suite cannot run, or None."""
    if need == "vulkan":
        devices = subprocess.run([os.path.join(build, "quern"), "devices"], capture_output=True, text=True)
        return None if "\nvulkan:" in devices.stdout else "there is no Vulkan device"
    if "/" in need:
        if os.path.exists(need):
            return None
        shared = "/../shared/"
        return f"there is no ..{shared[3:]}{need.split(shared)[1]} beside this checkout" if shared in need else f"there is no {need}"
    return None if shutil.which(need) else f"there is no {need}"


def parse(words):
    options, needs = {"--stack": False}, []
    while words and words[0] != "--":
        word = words.pop(0)
        if word == "--stack":
            options[word] = True
        elif word == "--needs":
            needs.append(words.pop(0))
        else:
            options[word] = words.pop(0)
    return options, needs, words[1:]


def note(options, line):
    folder = os.path.join(options["--build"], "suite-times")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, options["--name"]), "w", encoding="utf-8") as file:
        file.write(line + "\n")


def is_sanitized(program):
    """Sanitizers need more stack than a caller of the library has to have."""
    with open(program, "rb") as file:
        return b"__asan_" in file.read()


def main():
    options, needs, command = parse(sys.argv[1:])
    for need in needs:
        why = lack(need, options["--build"])
        if why:
            note(options, f"skip\t{why}")
            print(f"skip: {why}")
            return SKIPPED
    if options["--stack"] and not is_sanitized(command[0]):
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    os.environ["QUERN_TEST_BUILD"] = options["--build"]
    start = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    wall = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    sys.stdout.write(done.stdout)
    if done.returncode == SKIPPED:
        lines = re.findall(r"^skip(?:ped)?: (.*)", done.stdout, re.M)
        note(options, "skip\t" + (lines[-1] if lines else "it does not say why"))
        return SKIPPED
    if done.returncode < 0:
        print(f"killed by {signal.Signals(-done.returncode).name}")
    note(options, f"ran\t{options['--budget']}\t{used.ru_utime + used.ru_stime:.2f}\t{wall:.2f}")
    return 1 if done.returncode else 0


sys.exit(main())
