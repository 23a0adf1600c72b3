#!/usr/bin/env python3
"""The profile command at its edges: exit codes, sentences, tables, CSV, files that are whole or absent, Ctrl-C.

    check_cli.py QUERN

Makes its own small traces. Prints one line per failed check and at the end `N passed, N failed`; exits 1 when any failed.
"""
import gzip
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 0, "dur": 1000, "args": {}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100, "dur": 400,
     "args": {"External id": 5, "Input Dims": [[2, 3], [3, 4]], "Call stack": "a;b"}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 150, "dur": 20,
     "args": {"External id": 5, "correlation": 9}},
    {"ph": "X", "cat": "kernel", "name": "gemm\x1b[31m,\"x\"", "pid": 0, "tid": 7, "ts": 200, "dur": 250,
     "args": {"External id": 5, "correlation": 9, "device": 0, "grid": [1, 1, 1], "block": [32, 1, 1]}},
]
failures = []
passed = 0


def check(name, true, detail=""):
    global passed
    if true:
        passed += 1
    else:
        failures.append(name)
        print(f"{name}: {detail}"[:600])


def run(*arguments, **more):
    return subprocess.run([QUERN, "profile", *arguments], capture_output=True, text=True, timeout=60, **more)


def expect(name, code, words, *arguments):
    """Exit code, and words that the sentence on standard error must hold. Nothing may be on standard output."""
    answer = run(*arguments)
    good = answer.returncode == code and all(word in answer.stderr for word in words) and answer.stdout == ""
    check(name, good, f"exit {answer.returncode}, said {answer.stderr!r}, printed {answer.stdout[:80]!r}")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def usage_errors(trace):
    expect("no view", 2, ["name a view"])
    expect("no file", 2, ["needs a file or folder"], "overview")
    expect("unknown view", 2, ["overvieww"], "overvieww", trace)
    expect("unknown option", 2, ["--frob"], "overview", trace, "--frob")
    expect("option without value", 2, ["--worker", "needs something behind it"], "overview", trace, "--worker")
    expect("unknown dialect", 2, ["tpu"], "overview", trace, "--dialect", "tpu")
    expect("bad top", 2, ["--top"], "overview", trace, "--top", "-3")
    expect("too much", 2, ["what is"], "overview", trace, trace)
    expect("all needs a folder", 2, ["-o"], "all", trace)
    expect("diff needs another", 2, ["--against"], "diff", trace)
    answer = run("--help")
    check("help", answer.returncode == 0 and "operation_table" in answer.stdout, answer.stderr)


def runtime_errors(work, trace):
    expect("absent file", 1, ["nowhere"], "overview", os.path.join(work, "nowhere.pt.trace.json"))
    empty = os.path.join(work, "empty")
    os.mkdir(empty)
    expect("folder without traces", 1, ["empty"], "overview", empty)
    expect("no such worker", 1, ["nobody"], "overview", trace, "--worker", "nobody")
    expect("no such span", 1, ["77"], "overview", trace, "--span", "77")
    expect("no memory records", 1, ["memory"], "memory", trace)
    expect("bad unit", 2, ["parsec"], "memory", trace, "--time", "parsec")
    cut = write(os.path.join(work, "cut.pt.trace.json"), json.dumps({"traceEvents": EVENTS})[:-40])
    expect("cut file", 1, ["cut.pt.trace.json", "byte"], "overview", cut)
    expect("no operator of that name", 1, ["nope"], "operation_stack", trace, "--op", "nope")
    expect("no such node", 1, ["0-9"], "diff", trace, "--against", trace, "--path", "0-9")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            answer = subprocess.run([QUERN, "profile", "overview", trace], stdout=full, stderr=subprocess.PIPE, text=True)
        check("full disk", answer.returncode == 1 and "written" in answer.stderr, f"{answer.returncode} {answer.stderr!r}")
        many = [dict(EVENTS[1], name=f"op {i}", ts=500 * i) for i in range(100)]
        many = write(os.path.join(work, "many.pt.trace.json"), json.dumps({"traceEvents": many}))
        answer = run("operation_table", many, "--json", "-o", "/dev/full")
        check("full disk behind a long view", answer.returncode == 1 and "No space left" in answer.stderr, repr(answer.stderr))


def bad_input(work):
    """Each kind of bad input: one clear error with its place, or the views and a count of what was left out."""
    good = json.dumps({"traceEvents": EVENTS})
    refused = {
        "cut in a string": (good[:good.index("gemm") + 2], ["the text ends too early"]),
        "malformed": (good.replace('"ts": 150,', '"ts": 150,,'), ["byte %d" % (good.index('"ts": 150,') + 10), "quoted key"]),
        "deeply nested": (good.replace('"a;b"', "[" * 2000 + "]" * 2000), ["byte", "1024 deep"]),
        "nothing": ("", ["byte 0"]),
        "no events": ('{"a": 1}', ["no traceEvents"]),
        "text behind": (good + " x", ["byte %d" % (len(good) + 1), "more text follows"]),
    }
    for name, (text, words) in refused.items():
        path = write(os.path.join(work, "bad.pt.trace.json"), text)
        expect(name, 1, words, "overview", path)
        check(name + ": the path once", run("overview", path).stderr.count("bad.pt.trace.json") == 1, "")
    kept = {
        "not a number": (good.replace('"ts": 100', '"ts": NaN'), "1 event left out"),
        "a sum beyond all numbers": (good.replace('"ts": 0, "dur": 1000', '"ts": -1.7e308, "dur": 1.7e308').replace(
            '"ts": 100, "dur": 400', '"ts": -1.7e308, "dur": 3e307').replace('"ts": 200, "dur": 250', '"ts": 1.7e308, "dur": 1.7e308'), ""),
        "infinite": (good.replace('"dur": 400', '"dur": Infinity'), "1 event left out"),
        "time as text": (good.replace('"ts": 100', '"ts": "100"'), "1 event left out"),
        "negative duration": (good.replace('"dur": 250', '"dur": -250'), "1 event ends before it begins"),
        "unknown category": (good.replace('"cuda_runtime"', '"martian"'), "its category is unknown"),
        "no category": (good.replace('"cat": "kernel", ', ""), "1 event left out"),
        "duplicate keys": (good.replace('"dur": 400', '"dur": 7, "dur": 400'), ""),
        "unsorted": (json.dumps({"traceEvents": EVENTS[::-1]}), ""),
        "control characters": (good.replace("aten::mm", "aten::\tm"), ""),
    }
    for name, (text, words) in kept.items():
        path = write(os.path.join(work, "odd.pt.trace.json"), text)
        answer = run("overview", path, "--json")
        good_answer = answer.returncode == 0 and words in answer.stderr and (words != "" or answer.stderr == "")
        figures = "NaN" not in answer.stdout and '"extra": Infinity' not in answer.stdout
        check(name, good_answer and figures and json.loads(answer.stdout), f"{answer.stderr!r}")
    whole = run("operation_table", write(os.path.join(work, "odd.pt.trace.json"), good), "--json").stdout
    for name in ("duplicate keys", "unsorted"):
        path = write(os.path.join(work, "odd.pt.trace.json"), kept[name][0])
        check(name + " change nothing", run("operation_table", path, "--json").stdout == whole, "")
    packed = gzip.compress(good.encode())
    bomb = os.path.join(work, "bomb.pt.trace.json.gz")
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(272):
            file.write(b" " * (1 << 20))
    expect("gzip bomb", 1, ["bomb.pt.trace.json.gz: stored byte", "200 times"], "overview", bomb)
    os.remove(bomb)
    for name, extension, data, words in (("packed under a plain name", "", packed, ["gzip", ".gz"]),
                                         ("plain under a packed name", ".gz", good.encode(), ["stored byte 0", "gzip header"]),
                                         ("packed and cut", ".gz", packed[:-30], ["stored byte", "unpacked byte"])):
        path = os.path.join(work, "z.pt.trace.json" + extension)
        with open(path, "wb") as file:
            file.write(data)
        expect(name, 1, words, "overview", path)
        check(name + ": the path once", run("overview", path).stderr.count("z.pt.trace.json") == 1, "")


def owners(work):
    """External ids that are correlations: no operator owns its launch, unless asked to look at the time."""
    text = json.dumps({"traceEvents": EVENTS}).replace('"External id": 5, "correlation"', '"External id": 9, "correlation"')
    path = write(os.path.join(work, "ids.pt.trace.json"), text)
    for owner, wanted in (("id", 0), ("time", 250), ("enclosing", 250)):
        answer = run("operation_table", path, "--json", "--owner", owner)
        got = json.loads(answer.stdout or '{"data": [{}]}')["data"][0].get("device_total_duration")
        check("owner by " + owner, got == wanted, f"{got} {answer.stderr}")
    expect("unknown owner", 2, ["nobody"], "overview", path, "--owner=nobody")
    answer = run("html", path, "--owner=enclosing", "-o", os.path.join(work, "owner.html"))
    check("owner of the page", answer.returncode == 0 or "without its page" in answer.stderr, answer.stderr)


def forms(trace):
    answer = run("operation_table", trace, "--json")
    row = json.loads(answer.stdout)["data"][0] if answer.returncode == 0 else {}
    check("json", row.get("name") == "aten::mm" and row.get("device_self_duration") == 250, answer.stdout + answer.stderr)
    answer = run("kernel_table", trace, "--csv")
    check("csv", answer.stdout.split("\n")[1] == '"gemm\x1b[31m,""x""",No,1,250,250,250,250', repr(answer.stdout))
    answer = run("kernel_table", trace)
    check("table", 'gemm?[31m,"x"' in answer.stdout and "\x1b" not in answer.stdout, repr(answer.stdout))
    answer = run("operation_table", trace, env=dict(os.environ, COLUMNS="100"))
    check("table header", [len(line.split()) for line in answer.stdout.split("\n")][2:4] == [10, 10], answer.stdout)
    answer = run("overview", trace)
    check("overview table", "Average step (us)" in answer.stdout and "GPU Summary" in answer.stdout, answer.stdout)
    answer = run("operation_stack", trace, "--op=aten::mm", "--json")
    check("one stack", '"call_stack": "a;b"' in answer.stdout, answer.stdout + answer.stderr)
    answer = run("diffnode", trace, "--against", trace, "--json")
    keys = list(json.loads(answer.stdout or "{}"))
    check("diff node", keys == ["left", "right", "path", "children"], f"{keys} {answer.stderr}")
    answer = run("trace_view", trace)
    events = json.loads(answer.stdout or "{}").get("traceEvents", [])
    check("trace view", events[-len(EVENTS):] == EVENTS and events[0]["ph"] == "C", answer.stdout[:300] + answer.stderr)


def foreign_names(work):
    """The name of a file moves no terminal's cursor, in whatever is said of it."""
    folder = os.path.join(work, "names")
    os.mkdir(folder)
    events = EVENTS + [{"ph": "X", "cat": "martian", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]
    write(os.path.join(folder, "w\x1b[2Jx.pt.trace.json"), json.dumps({"traceEvents": events}))
    for view in ("overview", "workers"):
        answer = run(view, folder)
        check(f"{view} of a file with an odd name", answer.returncode == 0 and "\x1b" not in answer.stdout + answer.stderr,
              repr(answer.stderr))
    check("it is named all the same", "w?[2Jx.pt.trace.json: 1 event left out" in run("overview", folder).stderr)
    main, side = os.openpty()
    reader = subprocess.Popen([QUERN, "profile", "overview", folder], stdout=subprocess.DEVNULL, stderr=side)
    reader.wait(timeout=60)
    os.close(side)
    shown = os.read(main, 65536)
    os.close(main)
    check("the line of progress", b"\x1b" not in shown and b"w?[2Jx" in shown, repr(shown))


def repairs(work):
    """What the reader tolerates, the trace view repairs: a browser must be able to read it."""
    text = json.dumps({"traceEvents": EVENTS}).replace('"aten::mm"', '"aten::\tm\\x"').replace('"tid": 7', '"tid": N/A')
    for dialect in ("upstream", "mlu_a"):
        path = write(os.path.join(work, "odd.pt.trace.json"), text)
        answer = run("trace_view", path, "--dialect", dialect)
        try:
            events = json.loads(answer.stdout)["traceEvents"]
            names = [event["name"] for event in events]
            check("repaired " + dialect, "aten::\tm\\x" in names and any(e.get("tid") == "N/A" for e in events), str(names))
        except ValueError as error:
            check("repaired " + dialect, False, f"{error}: {answer.stdout[:300]!r} {answer.stderr}")
    window = [{"ph": "i", "name": "Iteration Start: 1", "ts": 0}, {"ph": "i", "name": "Record Window End", "ts": 9e12}]
    for place in (0, 2, len(EVENTS)):
        mixed = EVENTS[:place] + window[::-1 if place == 0 else 1] + EVENTS[place:]
        path = write(os.path.join(work, "window.pt.trace.json"), json.dumps({"traceEvents": mixed, "x": 1}, indent=1))
        answer = run("trace_view", path)
        names = [event["name"] for event in json.loads(answer.stdout)["traceEvents"] if event["ph"] != "C"]
        wanted = [event["name"] for event in mixed if event["name"] != "Record Window End"]
        check(f"window end at {place}", names == wanted, f"{names}")


def whole_files(work, trace):
    out = os.path.join(work, "out")
    os.mkdir(out)
    path = os.path.join(out, "v.json")
    answer = run("overview", trace, "--json", "-o", path)
    check("-o", answer.returncode == 0 and os.listdir(out) == ["v.json"], f"{answer.stderr} {os.listdir(out)}")
    answer = run("memory", trace, "--json", "-o", os.path.join(out, "w.json"))
    check("-o of a view that is not there", answer.returncode == 1 and os.listdir(out) == ["v.json"], str(os.listdir(out)))
    expect("-o into nothing", 1, ["absent"], "overview", trace, "-o", os.path.join(out, "absent", "v.json"))
    answer = run("all", trace, "-o", os.path.join(work, "deep", "all"))
    folder = os.path.join(work, "deep", "all", "w.spandefault")
    found = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    check("all", answer.returncode == 0 and {"overview.json", "trace_view.sha256"} <= found and "memory.json" not in found,
          f"{answer.stderr} {found}")
    answer = run("all", trace, "--csv", "-o", os.path.join(work, "csv"))
    check("all as csv", os.path.exists(os.path.join(work, "csv", "w.spandefault", "kernel_table.csv")), answer.stderr)


def written_over(work):
    """What is read is not written over, by whatever name; and a link stays, with what is behind it written."""
    out = os.path.join(work, "over")
    os.mkdir(out)
    trace = write(os.path.join(out, "w.pt.trace.json"), json.dumps({"traceEvents": EVENTS}))
    other = write(os.path.join(out, "o.pt.trace.json"), json.dumps({"traceEvents": EVENTS}))
    link = os.path.join(out, "link.json")
    os.symlink("w.pt.trace.json", link)
    for words in (("overview", trace, "-o", trace), ("overview", trace, "-o", link), ("overview", out, "-o", trace),
                  ("diff", trace, "--against", other, "-o", other), ("html", trace, "-o", trace), ("html", trace, "--against", other, "-o", other)):
        answer = run(*words)
        check(f"over its input {words}", answer.returncode == 2 and "is what is read" in answer.stderr or
              "without its page" in answer.stderr, f"{answer.returncode} {answer.stderr}")
    for path in (trace, other):
        with open(path, encoding="utf-8") as file:
            check("the trace stays", file.read() == json.dumps({"traceEvents": EVENTS}))
    os.remove(link)
    target = write(os.path.join(out, "target.json"), "old")
    os.symlink("target.json", link)
    answer = run("overview", trace, "--json", "-o", link)
    with open(target, encoding="utf-8") as file:
        check("-o through a link", answer.returncode == 0 and os.path.islink(link) and file.read() == run("overview", trace, "--json").stdout,
              f"{answer.stderr} {os.path.islink(link)}")
    if os.path.exists("/proc/self/fd/1"):
        os.remove(link)
        os.symlink("/proc/self/fd/1", link)  # as /dev/stdout is
        with open(os.path.join(out, "redirected"), "w+", encoding="utf-8") as file:
            file.write("before ")
            file.flush()
            subprocess.run([QUERN, "profile", "overview", trace, "--json", "-o", link], stdout=file, stderr=subprocess.DEVNULL, check=False)
            file.seek(0)
            check("-o /dev/stdout", os.path.islink(link) and file.read().startswith("before {"), os.path.islink(link))
    check("nothing else is left", len(os.listdir(out)) == 5 - (not os.path.exists("/proc/self/fd/1")), os.listdir(out))


def interruption(work):
    """A trace that never ends is read from a pipe until the signal comes."""
    pipe = os.path.join(work, "pipe.pt.trace.json")
    out = os.path.join(work, "interrupted")
    os.mkfifo(pipe)
    os.mkdir(out)
    reader = subprocess.Popen([QUERN, "profile", "overview", pipe, "--json", "-o", os.path.join(out, "v.json")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    event = json.dumps(EVENTS[1]).encode() + b","
    with open(pipe, "wb", buffering=0) as writer:
        writer.write(b'{"traceEvents": [')
        began, sent = time.monotonic(), False
        try:
            while reader.poll() is None and time.monotonic() - began < 30:
                writer.write(event * 100)
                if not sent and time.monotonic() - began > 0.3:
                    reader.send_signal(signal.SIGINT)
                    sent = True
        except BrokenPipeError:
            pass
    stdout, stderr = reader.communicate(timeout=30)
    left = os.listdir(out)
    check("Ctrl-C", reader.returncode == 130 and left == [], f"{reader.returncode} {stderr!r} {left} {stdout!r}")


def server(work):
    """A server that cannot tell its address ends; one that waits for a trace that never comes ends with a second Ctrl-C."""
    pipe = os.path.join(work, "never.pt.trace.json")
    os.mkfifo(pipe)
    going = subprocess.Popen([QUERN, "profile", "serve", pipe, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = going.stdout.readline()
    if not address:  # built without
        going.communicate()
        return
    with socket.create_connection(("127.0.0.1", int(address.strip("/\n").rsplit(":", 1)[1])), timeout=10) as connection:
        connection.sendall(b"GET /api/view?view=overview&trace=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.5)
        for _ in range(2):
            going.send_signal(signal.SIGINT)
            time.sleep(0.5)
    try:
        going.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        going.kill()
        going.communicate()
    check("a second Ctrl-C ends the server", going.returncode == -signal.SIGINT, going.returncode)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            try:
                answer = subprocess.run([QUERN, "profile", "serve", pipe, "--port", "0"], stdout=full, stderr=subprocess.PIPE, text=True,
                                        timeout=20)
                check("an address that nobody gets", answer.returncode == 1 and "written" in answer.stderr, answer.stderr)
            except subprocess.TimeoutExpired:
                check("an address that nobody gets", False, "it went on serving")


def few_files(work, trace):
    """Clients who wait, more of them than the process may open files, keep nobody out."""
    limit = lambda files: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
    going = subprocess.Popen([QUERN, "profile", "serve", trace, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=limit(20))
    address = going.stdout.readline()
    if not address:  # built without
        going.communicate()
        return
    place = ("127.0.0.1", int(address.strip("/\n").rsplit(":", 1)[1]))
    waiting = [socket.create_connection(place, timeout=10) for _ in range(30)]
    for connection in waiting:
        try:
            connection.sendall(b"GET / HT")
        except OSError:
            pass  # it has given way
    said = b""
    try:
        with socket.create_connection(place, timeout=10) as connection:
            connection.sendall(b"GET /api/view?view=overview&trace=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while more := connection.recv(65536):
                said += more
    except OSError as fault:
        said += str(fault).encode()
    check("a question behind clients who took all files", b"performance" in said, repr(said[-200:]))
    for connection in waiting:
        connection.close()
    going.terminate()
    going.communicate()
    try:
        answer = subprocess.run([QUERN, "profile", "serve", trace, "--port", "0"], capture_output=True, text=True, timeout=20,
                                preexec_fn=limit(10))
        check("too few files for a server", answer.returncode == 1 and "more files" in answer.stderr, repr(answer.stderr))
    except subprocess.TimeoutExpired:
        check("too few files for a server", False, "it serves")


def main():
    with tempfile.TemporaryDirectory() as work:
        trace = write(os.path.join(work, "w.pt.trace.json"), json.dumps({"traceEvents": EVENTS}))
        usage_errors(trace)
        runtime_errors(work, trace)
        bad_input(work)
        owners(work)
        forms(trace)
        foreign_names(work)
        repairs(work)
        whole_files(work, trace)
        written_over(work)
        interruption(work)
        server(work)
        few_files(work, trace)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    QUERN = os.path.abspath(sys.argv[1])
    sys.exit(main())
