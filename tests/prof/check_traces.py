#!/usr/bin/env python3
"""Every expected view of the trace data against what `quern profile` answers.

    check_traces.py QUERN TRACES [PART...]

QUERN is the command, TRACES the folder data/traces; PART limits the check to names that contain one of these words. Prints one
line per mismatch and at the end `N agree, N differ`; exits 1 when any differ.
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from prof_compare import first_difference, is_object, parse, read  # noqa: E402

DIALECTS = ("upstream", "mlu_a", "mlu_b")
# Views of the reference that a trace may lack; where it does, we must not have one either. (Counters are written as [] then.)
MAY_LACK = {"kernel", "kernel_table", "kernel_table_by_op", "kernel_tc_pie", "memory", "memory_curve", "memory_events", "module",
            "tree", "distributed_deviceinfo", "distributed_overlap", "distributed_waittime", "distributed_commops"}


def form(value, key=""):
    """Keys and their order, kinds of values, and the words of columns, titles and tooltips; of a list the forms in it."""
    if is_object(value):
        if key in ("columns[]", "data[]") and len(value[1]) <= 3:
            return repr(value[1]) if key == "columns[]" else repr([k for k, _ in value[1]])
        return repr([(k, form(v, k)) for k, v in value[1]])
    if isinstance(value, list):
        forms = [form(v, key + "[]") for v in value]
        return repr(forms if key == "columns" else sorted(set(forms)))
    if key in ("tooltip", "title", "sort", "tc_eligible", "tc_self_ratio", "tc_total_ratio") and type(value) is str:
        return value
    return "number" if type(value) is not str and isinstance(value, str) else type(value).__name__


class Check:
    def __init__(self, quern, traces, parts):
        self.quern, self.traces, self.parts = quern, traces, parts
        self.agree = self.differ = 0

    def wanted(self, name):
        return not self.parts or any(part in name for part in self.parts)

    def result(self, name, difference):
        if difference:
            self.differ += 1
            print(f"{name}: {difference}")
        else:
            self.agree += 1

    def run(self, *arguments):
        """The answer, and why there is none (in one line) or None."""
        answer = subprocess.run([self.quern, "profile", *arguments], capture_output=True, text=True)
        said = " / ".join(answer.stderr.split("\n"))[:300]
        return answer.stdout, f"exit {answer.returncode}: {said}" if answer.returncode else None

    def compare(self, name, expected, got_path):
        if not os.path.exists(got_path):
            self.result(name, "no such view was written")
            return
        self.result(name, first_difference(parse(expected), parse(read(got_path))))

    def all_views(self, source, dialect, out, *more):
        """Writes every view; returns why not, or None. A trace the reference accepts must be accepted."""
        return self.run("all", source, "--dialect", dialect, "-o", out, *more)[1]

    # ---- Folders of traces with folders of views

    def folder(self, run, expected, dialect, single=None):
        """single: the only <worker>.span<N>, where the expected files are not in a folder of that name."""
        with tempfile.TemporaryDirectory() as out:
            fault = self.all_views(os.path.join(self.traces, run), dialect, out)
            known = set()
            for folder, _, names in sorted(os.walk(os.path.join(self.traces, expected))):
                inside = os.path.relpath(folder, os.path.join(self.traces, expected))
                for file in sorted(names):
                    view = file.split(".")[0]
                    place = "." if view in ("views", "workers") else single or inside
                    name = os.path.join(expected, "" if inside == "." else inside, file)
                    known.add(os.path.normpath(os.path.join(place, view)))
                    if fault:
                        self.result(name, fault)
                    elif file.endswith(".sha256"):
                        self.hash(name, os.path.join(out, place, file))
                    else:
                        self.compare(name, read(os.path.join(folder, file)), os.path.join(out, place, view + ".json"))
            if not fault:
                self.unexpected(expected, out, known)

    def hash(self, name, got_path):
        with open(os.path.join(self.traces, name), encoding="utf-8") as file:
            expected = file.read().strip()
        with open(got_path, encoding="utf-8") as file:
            got = file.read().strip()
        self.result(name, None if got == expected else f"expected {expected}, got {got}")

    def unexpected(self, expected, out, known):
        for folder, _, names in os.walk(out):
            for file in names:
                path = os.path.normpath(os.path.join(os.path.relpath(folder, out), file))
                if file.split(".")[0] in MAY_LACK and os.path.splitext(path)[0] not in known:
                    self.result(os.path.join(expected, path), "not expected")

    # ---- Two traces

    def diff(self, folder, dialect):
        for file in sorted(os.listdir(os.path.join(self.traces, folder))):
            name = os.path.join(folder, file)
            if not self.wanted(name):
                continue
            top = os.path.dirname(folder)
            left, right = [side.split(".") for side in file.split(".json")[0].split("__")]
            arguments = ["diff", os.path.join(self.traces, top, left[0]), "--against", os.path.join(self.traces, top, right[0])]
            for option, side in (("--worker", left), ("--against-worker", right)):
                arguments += [option, side[1]] if len(side) > 1 else []
            for option, side in (("--span", left), ("--against-span", right)):
                arguments += [option, side[2]] if len(side) > 2 else []
            answer, fault = self.run(*arguments, "--json", "--dialect", dialect)
            expected = read(os.path.join(self.traces, name))
            self.result(name, fault or first_difference(parse(expected), parse(answer)))

    # ---- The five views the project started from. Their traces are not published: only form and fixed texts can agree.

    def seed(self):
        with tempfile.TemporaryDirectory() as out:
            fault = self.all_views(os.path.join(self.traces, "synthetic/mlu"), "mlu_a", out)
            for run in ("run0", "run1"):
                for file in sorted(os.listdir(os.path.join(self.traces, "mlu_seed", run))):
                    name = os.path.join("mlu_seed", run, file)
                    if self.wanted(name):
                        expected = form(parse(read(os.path.join(self.traces, name))))
                        got = fault or form(parse(read(os.path.join(out, "worker0.span1", file))))
                        self.result(name, fault or (None if got == expected else f"expected the form {expected}, got {got}"))

    # ---- Many tiny traces. Some hold device work alone, which the reference answers with a step of no meaning; only
    # --strict-reference does the same.

    def fuzz(self, dialect):
        path = os.path.join(self.traces, "fuzz", dialect + ".jsonl.gz")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                case = json.loads(line)
                name = f"fuzz/{dialect}/{case['seed']}"
                if self.wanted(name):
                    self.fuzz_case(name, dialect, line, case)

    def fuzz_case(self, name, dialect, line, case):
        members = dict(parse(line)[1])
        with tempfile.TemporaryDirectory() as work:
            source, out = os.path.join(work, "w.pt.trace.json"), os.path.join(work, "out")
            with open(source, "w", encoding="utf-8") as file:
                json.dump(case["trace"], file)
            fault = self.all_views(source, dialect, out, "--strict-reference")
            place = os.path.join(out, "w.spandefault")
            for view, expected in members["expected"][1]:
                if fault:
                    self.result(f"{name}/{view}", fault)
                    continue
                file = os.path.join(place, ("overview" if view == "gpu_summary" else view) + ".json")
                if not os.path.exists(file):
                    self.result(f"{name}/{view}", "no such view was written")
                    continue
                got = parse(read(file))
                if view == "overview":
                    got = (got[0], [pair for pair in got[1] if pair[0] in dict(expected[1])])
                elif view == "gpu_summary":
                    block = dict(got[1]).get("mlu_metrics" if dialect == "mlu_a" else "gpu_metrics")
                    got = dict(block[1])["data"] if is_object(block) else None
                elif view == "operation_stack":  # these data list operators as first called, the others as the table does
                    order = [key for key, _ in got[1]]
                    expected = (expected[0], sorted(expected[1], key=lambda p: order.index(p[0]) if p[0] in order else -1))
                self.result(f"{name}/{view}", first_difference(expected, got))
            if not fault:
                self.fuzz_unexpected(name, place, {view for view, _ in members["expected"][1]})

    def fuzz_unexpected(self, name, place, views):
        for file in os.listdir(place):  # modules were not asked for
            if file.split(".")[0] in MAY_LACK - views - {"module"}:
                self.result(f"{name}/{file}", "not expected")


def main():
    if len(sys.argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    sys.setrecursionlimit(100000)
    check = Check(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:])
    for run in ("num_workers_0", "num_workers_4"):
        if check.wanted(run + "/expected"):
            check.folder(run, run + "/expected", "upstream", single="worker0.span1")
    for run in sorted(os.listdir(os.path.join(check.traces, "synthetic"))):
        for dialect in DIALECTS:
            expected = f"synthetic/{run}/expected_{dialect}"
            if os.path.isdir(os.path.join(check.traces, expected)) and check.wanted(expected):
                check.folder("synthetic/" + run, expected, dialect)
    check.seed()
    check.diff("expected_diff", "upstream")
    for dialect in DIALECTS:
        check.diff("synthetic/expected_diff_" + dialect, dialect)
        check.fuzz(dialect)
    print(f"{check.agree} agree, {check.differ} differ")
    return 1 if check.differ or not check.agree else 0


if __name__ == "__main__":
    sys.exit(main())
