#!/usr/bin/env python3
"""Runs lanes of tests: builds what a lane needs, has CTest run its suites, and says what passed, failed, was skipped and took too long.

    run.py [LANE...]         the lanes to run, `quick` if none is named; `all` for every one
    run.py --draw            the deep lane whose turn it is: the number of commits modulo the number of deep lanes
    run.py --list            the lanes
    run.py --page JSON       docs/testing.md's table, from the suites.json of a build
    run.py --check-page JSON the same, compared with the page that is there

The lanes stand in tests/lanes.txt, the suites in tests/suites.cmake. The last line is `N passed, N failed, N skipped`.
"""
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "testing.md")
MARK = "<!-- The rest of this page is generated: tests/run.py --page BUILD/suites.json -->\n"
QUIET = 0.1  # the part of the processors that others may use while a budget still counts
GRACE = 1.25  # machines of one kind differ by this much: only what exceeds its budget by more fails


class Flavour:
    def __init__(self, line):
        self.lane, self.name, self.preset, budget, pace, targets, purpose = line.split(None, 6)
        self.budget, self.pace, self.targets, self.purpose = float(budget), float(pace), targets.split(","), purpose.strip()


def flavours():
    with open(os.path.join(ROOT, "tests", "lanes.txt"), encoding="utf-8") as file:
        return [Flavour(line) for line in file if line.strip() and not line.startswith("#")]


def lanes():
    return list(dict.fromkeys(flavour.lane for flavour in flavours()))


def drawn():
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    deep = lanes()[1:]
    return deep[int(count.stdout or 0) % len(deep)]


# ---- Time and who else used it

def processor_seconds():
    """Seconds that all processors were busy or taken away since the machine started, and how many there are."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # all but idle and waiting for the disk


def own_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Watch:
    """Measures a stretch of time: wall seconds, our own processor seconds, and whether others left us the machine."""

    def __init__(self):
        self.start, self.busy, self.own = time.monotonic(), processor_seconds(), own_seconds()

    def stop(self):
        self.wall = time.monotonic() - self.start
        self.own = own_seconds() - self.own
        others = processor_seconds() - self.busy - self.own
        self.others = max(others, 0) / max(self.wall * (os.cpu_count() or 1), 1e-9)
        return self


# ---- Results

class Results:
    def __init__(self):
        self.passed = self.failed = 0
        self.skipped, self.slow, self.failures = [], [], []

    def count(self, name, good):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            self.failures.append(name)

    def over(self, name, used, budget, quiet):
        """A suite that used more than its budget; on a busy machine that is only told."""
        self.slow.append(f"{name} used {used:.0f} s of a core, and its budget is {budget:.0f} s")
        if quiet:
            self.count(name + " (budget)", False)

    def close(self):
        for why in self.slow:
            print(f"slow: {why}")
        for name, why in self.skipped:
            print(f"skipped: {name}: {why}")
        shared = sum("shared/" in why for _, why in self.skipped)
        if shared:
            print(f"{shared} of the skipped tests need the data of ../shared")
        for name in self.failures:
            print(f"failed: {name}")
        print(f"{self.passed} passed, {self.failed} failed, {len(self.skipped)} skipped")
        return 1 if self.failed or not self.passed else 0


# ---- Builds and runs

def build_root():
    """Where builds go: build/ in the checkout, or outside it when nothing can be written there."""
    root = os.environ.get("QUERN_BUILD", os.path.join(ROOT, "build"))
    try:
        os.makedirs(root, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError:
        root = os.path.join(tempfile.gettempdir(), f"quern-build-{os.getuid()}")
        print(f"The checkout cannot be written to: builds go to {root}.")
        os.makedirs(root, exist_ok=True)
    return root


def launcher(flavour, root):
    """What CMake must know for a flavour whose programs do not run by themselves; or why the flavour cannot be had."""
    if flavour.name == "aarch64":
        for what, package in (("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"), ("qemu-aarch64-static", "qemu-user-static")):
            if not shutil.which(what):
                return None, f"there is no {what} (Debian: {package})"
        if not os.path.exists("/usr/lib/aarch64-linux-gnu/libz.a"):
            return None, "there is no zlib for aarch64 (Debian: zlib1g-dev:arm64)"
        # By itself the emulator has vectors of 512 bits, for which there is no level.
        return ["-DQUERN_TEST_LAUNCHER=qemu-aarch64-static;-cpu;max,sve256=on"], None
    if flavour.name == "vulkan-new":
        kit = os.path.join(root, "new-vulkan")
        made = os.path.exists(os.path.join(kit, "run")) or \
            subprocess.run([os.path.join(ROOT, "tools", "new_vulkan.sh"), kit], stdin=subprocess.DEVNULL).returncode == 0
        if not made:
            return None, "a new Vulkan driver could not be unpacked"
        return [f"-DQUERN_TEST_LAUNCHER={kit}/run", f"-DGLSLC={kit}/glslc", f"-DVULKAN_INCLUDE={kit}/include"], None
    if flavour.name in ("msan", "fuzz", "bare") and not shutil.which("clang"):
        return None, "there is no clang"
    return [], None


def folder_of(flavour, root):
    return root if flavour.preset == "release" else os.path.join(root, flavour.preset)


def build(flavour, root, results):
    """Configures and builds; whether suites can be run."""
    folder, name = folder_of(flavour, root), f"build-{flavour.name}"
    more, why = launcher(flavour, root)
    if why:
        results.skipped.append((name, why))
        return False
    if shutil.which("ccache"):
        more.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
    watch = Watch()
    log = os.path.join(root, f"{name}.log")
    with open(log, "w", encoding="utf-8") as file:
        good = all(subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT).returncode == 0
                   for command in (["cmake", "--preset", flavour.preset, "-B", folder, *more],
                                   ["cmake", "--build", folder, "-j", str(os.cpu_count() or 1), "--target", *flavour.targets]))
    watch.stop()
    print(f"{'built' if good else 'NOT BUILT'} {flavour.name}: {watch.wall:.0f} s, {watch.own:.0f} s of a core", flush=True)
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    for line in lines:
        if re.match(r"-- (Left out|No tests|cmocka)", line):
            print("  " + line[3:])
    if not good:
        print("\n".join("    | " + line[:300] for line in lines[-40:]))
    results.count(name, good)
    if good and watch.own > flavour.budget * GRACE:
        results.over(name, watch.own, flavour.budget, watch.others < QUIET)
    return good


def run_suites(flavour, root, results):
    folder = folder_of(flavour, root)
    report = os.path.join(folder, f"results-{flavour.name}.xml")
    shutil.rmtree(os.path.join(folder, "suite-times"), ignore_errors=True)
    watch = Watch()
    subprocess.run(["ctest", "--test-dir", folder, "-L", f"^lane-{flavour.name}$", "-j", str(os.cpu_count() or 1), "--output-on-failure",
                    "--output-junit", report], cwd=ROOT, stdin=subprocess.DEVNULL)
    watch.stop()
    quiet = watch.others < QUIET
    n = take_report(flavour, folder, report, quiet, results)
    print(f"{flavour.name}: {n} suites in {watch.wall:.0f} s, {watch.own:.0f} s of a core; "
          f"others used {100 * watch.others:.0f} % of the machine")
    if results.slow and not quiet:
        print("The machine was not quiet: a budget that was exceeded is told below and fails nothing.")


def take_report(flavour, folder, report, quiet, results):
    """Counts what CTest reports, with what tests/suite.py noted of each suite; how many suites there were."""
    n = 0
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        name, noted = f"{flavour.name}/{case.get('name')}", note_of(folder, case.get("name"))
        n += 1
        if noted[0] == "skip":
            results.skipped.append((name, noted[1]))
            continue
        results.count(name, case.get("status") == "run" and case.find("failure") is None)
        if noted[0] == "ran" and float(noted[2]) > float(noted[1]) * flavour.pace * GRACE:
            results.over(name, float(noted[2]), float(noted[1]) * flavour.pace, quiet)
    if not n:
        results.count(f"{flavour.name}: no suite ran", False)
    return n


def note_of(folder, name):
    try:
        with open(os.path.join(folder, "suite-times", name), encoding="utf-8") as file:
            return file.read().rstrip("\n").split("\t")
    except OSError:
        return ["none"]


def environment():
    """What every suite sees, whatever the caller's environment was."""
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "QUERN_CPU", "QUERN_PROFILE"):
        os.environ.pop(name, None)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["ASAN_OPTIONS"] = "allocator_may_return_null=1:" + os.environ.get("ASAN_OPTIONS", "")
    os.environ.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")


def run(names):
    environment()
    root, results, watch = build_root(), Results(), Watch()
    for flavour in flavours():
        if flavour.lane in names and build(flavour, root, results):
            run_suites(flavour, root, results)
    print(f"{' and '.join(names)}: {watch.stop().wall / 60:.1f} minutes")
    return results.close()


# ---- The page

def page(suites_json):
    with open(suites_json, encoding="utf-8") as file:
        suites = json.load(file)[1:]
    lines = ["## Lanes\n", "| lane | build | what it is for |", "|---|---|---|"]
    lines += [f"| `{f.lane}` | `{f.preset}`{'' if f.name == f.lane else f', suites of `{f.name}`'} | {f.purpose} |" for f in flavours()]
    lines += ["", "## Tests\n", "A budget is in seconds of one core in the quick lane; tests/lanes.txt says how much slower a lane may be.\n", "| test | runs in | budget | what it protects |", "|---|---|---:|---|"]
    lines += [f"| `{s['name']}` | {s['lanes'].replace(' ', ', ')} | {s['budget']} | {s['protects']} |" for s in suites]
    return MARK + "\n" + "\n".join(lines) + "\n"


def check_page(suites_json):
    with open(PAGE, encoding="utf-8") as file:
        have = file.read().partition(MARK)
    if "".join(have[1:]) == page(suites_json):
        return 0
    print("docs/testing.md is not what the suites make: put the output of `tests/run.py --page BUILD/suites.json` behind its mark")
    return 1


def main(words):
    if words[:1] == ["--draw"]:
        print(drawn())
    elif words[:1] == ["--list"]:
        for flavour in flavours():
            print(f"{flavour.lane:9} {flavour.purpose}")
    elif words[:1] == ["--page"] and len(words) == 2:
        sys.stdout.write(page(words[1]))
    elif words[:1] == ["--check-page"] and len(words) == 2:
        return check_page(words[1])
    else:
        names = lanes() if "all" in words else list(dict.fromkeys(words)) or ["quick"]
        unknown = [name for name in names if name not in lanes()]
        if unknown:
            print(f"There is no lane {unknown[0]}; these are: {', '.join(lanes())}, and `all`.", file=sys.stderr)
            return 2
        return run(names)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
