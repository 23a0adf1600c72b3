#!/usr/bin/env python3
"""The runner of the tests, tried on made-up results: a test that cannot fail would hide here.

usage: check_runner.py
"""
import contextlib
import io
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import run  # noqa: E402

faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what)


def closing(cases, notes, quiet):
    """The runner's closing line and exit code for cases of CTest's report and notes of suite.py."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        body = "".join(f'<testcase name="{name}" status="{status}">{inner}</testcase>' for name, status, inner in cases)
        with open(report, "w", encoding="utf-8") as file:
            file.write(f"<testsuite>{body}</testsuite>")
        os.mkdir(os.path.join(folder, "suite-times"))
        for name, note in notes.items():
            with open(os.path.join(folder, "suite-times", name), "w", encoding="utf-8") as file:
                file.write(note + "\n")
        results, said = run.Results(), io.StringIO()
        with contextlib.redirect_stdout(said):
            run.take_report(run.Flavour("any lane none 9 1 all made up"), folder, report, quiet, results)
            code = results.close()
        return said.getvalue(), code


def check_counts():
    good, bad = ("good", "run", ""), ("bad", "fail", "<failure/>")
    said, code = closing([good], {"good": "ran\t5\t1.0\t1.0"}, True)
    expect(said.endswith("1 passed, 0 failed, 0 skipped\n") and code == 0, f"one that passes: {said}")
    said, code = closing([good, bad], {}, True)
    expect(said.endswith("1 passed, 1 failed, 0 skipped\n") and "failed: lane/bad" in said and code == 1, f"one that fails: {said}")
    said, code = closing([], {}, True)
    expect("no suite ran" in said and code == 1, f"a lane without suites: {said}")
    said, code = closing([("lost", "notrun", "<skipped/>")], {}, True)
    expect("failed: lane/lost" in said and code == 1, f"a program that is not there: {said}")
    said, code = closing([good, ("data", "notrun", "<skipped/>")], {"data": "skip\tthere is no ../shared/data/zoo beside this checkout"}, True)
    expect(said.endswith("1 passed, 0 failed, 1 skipped\n") and "1 of the skipped tests need" in said and code == 0, f"one that is skipped: {said}")
    said, code = closing([("data", "notrun", "<skipped/>")], {"data": "skip\twhy"}, True)
    expect(code == 1, f"nothing but skipped ones: {said}")


def check_budgets():
    slow = [("slow", "run", "")]
    said, code = closing(slow, {"slow": "ran\t5\t7.0\t3.0"}, True)
    expect(code == 1 and "slow used 7 s of a core, and its budget is 5 s" in said, f"over its budget: {said}")
    said, code = closing(slow, {"slow": "ran\t5\t7.0\t3.0"}, False)
    expect(code == 0 and "its budget is 5 s" in said, f"over its budget on a busy machine: {said}")
    said, code = closing(slow, {"slow": "ran\t5\t4.0\t90.0"}, True)
    expect(code == 0, f"one that waits: {said}")


def suite(*words):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "suite.py"), "--build", folder, "--name", "it", "--budget", "5", *words],
                              capture_output=True, text=True)
        with open(os.path.join(folder, "suite-times", "it"), encoding="utf-8") as file:
            return done.returncode, done.stdout, file.read()


def check_suite():
    expect(suite("--", "true")[0] == 0, "a command that succeeds")
    expect(suite("--", "false")[0] == 1, "a command that fails")
    code, said, _ = suite("--", "sh", "-c", "kill -SEGV $$")
    expect(code == 1 and "killed by SIGSEGV" in said, f"a command that is killed: {said}")
    code, said, note = suite("--needs", "/nowhere/at/all", "--", "true")
    expect(code == 77 and note == "skip\tthere is no /nowhere/at/all\n", f"a need: {note}")
    code, said, note = suite("--", "sh", "-c", "echo 'skip: no moon'; exit 77")
    expect(code == 77 and note == "skip\tno moon\n", f"a command that skips: {note}")
    _, said, _ = suite("--stack", "--", "/bin/sh", "-c", "ulimit -s")
    expect(said.strip() == "576", f"the stack: {said}")
    expect(float(suite("--", "python3", "-c", "sum(range(10**7))")[2].split()[2]) > 0.02, "seconds of a core are counted")


def check_lanes():
    names = run.lanes()
    expect(names[0] == "quick" and len(names) > 5, f"lanes: {names}")
    expect(run.drawn() in names[1:], "a deep lane is drawn")
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run.py"), "nosuch"], capture_output=True, text=True)
    expect(done.returncode == 2 and "There is no lane nosuch" in done.stderr, f"a lane that is not there: {done.stderr}")


check_counts()
check_budgets()
check_suite()
check_lanes()
print(f"{len(faults)} faults")
sys.exit(1 if faults else 0)
