#!/usr/bin/env python3
"""The quern command at its edges: what every verb says and returns, and what it leaves on the disk. Usage: check_verbs.py QUERN

Needs nothing but Python and models/stories.gguf. tests/format and tests/prof ask more of the verbs about files and traces.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
STORIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "stories.gguf")
VERBS = ("ops", "bench", "devices", "inspect", "quantize", "convert", "run", "chat", "tokenize", "embed", "eval", "plan", "train",
         "graph", "profile")
faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what[:600])


def run(*args, code=0, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run([QUERN, *args], stderr=subprocess.PIPE, text=True, errors="replace", timeout=300, **more)
    expect(done.returncode == code, f"{args}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


def without(shell, *args):
    """As a shell starts it after `>&-` and its like."""
    return subprocess.run(["sh", "-c", f'exec "$@" {shell}', "sh", QUERN, *args], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=300)


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def model(path, names):
    """A GGUF file with a small matrix of zeros under each name."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(names), 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for i, name in enumerate(names):
        head += text(name) + struct.pack("<IQQIQ", 2, 256, 2, 0, 2048 * i)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + bytes(2048 * len(names)))


# ---- Tests, each in a folder of its own

def help_texts(_):
    for words in [()] + [(verb,) for verb in VERBS] + [("profile", "html"), ("profile", "serve")]:
        done = run(*words, "--help")
        expect("usage: quern" in done.stdout and not done.stderr, f"{words} --help: {done.stdout[:80]!r} {done.stderr!r}")
        with open("/dev/full", "w", encoding="utf-8") as full:
            expect("could not be written" in run(*words, "--help", code=1, stdout=full).stderr, f"{words} --help into a full disk")
    with open("/dev/full", "w", encoding="utf-8") as full:
        run("--version", code=1, stdout=full)
    expect("130" in run("--help").stdout, "the codes of exits are all told")
    for words in ((), ("nothing",), ("",), ("--nothing",)):
        expect(run(*words, code=2).stderr.startswith("quern"), f"{words}: a sentence")


def closed_files(folder):
    """With standard files closed, words for people stay out of the files that are written."""
    good, other = os.path.join(folder, "good.gguf"), os.path.join(folder, "other.gguf")
    deep = os.path.join(folder, "deep.gguf")
    model(deep, [f"blk.{i}.ffn_up.weight" for i in range(300)])
    run("quantize", "-v", deep, good, "Q8_0")
    with open(good, "rb") as file:
        wanted = file.read()
    for shell in (">&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"):
        done = without(shell, "quantize", "-v", deep, other, "Q8_0")
        with open(other, "rb") as file:
            expect(file.read() == wanted, f"quantize -v {shell}: other bytes")
        expect((done.returncode == 1) == (" >&-" in f" {shell}"), f"quantize -v {shell}: exit code {done.returncode}")
        os.remove(other)
    events = [{"ph": "X", "cat": "martian", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 5},
              {"ph": "X", "cat": "cpu_op", "name": "b", "pid": 1, "tid": 1, "ts": 0, "dur": 5, "args": {}}]
    trace, view = os.path.join(folder, "w.pt.trace.json"), os.path.join(folder, "view.json")
    with open(trace, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)
    without("2>&-", "profile", "overview", trace, "--json", "-o", view)
    with open(view, encoding="utf-8") as file:
        expect(file.read().startswith("{"), "profile -o 2>&-: what was left out is told in the view itself")
    for words in (("ops",), ("inspect", STORIES), ("run", STORIES, "-n", "2", "--seed", "1"), ("--version",)):
        done = without(">&-", *words)
        expect(done.returncode == 1 and "written" in done.stderr, f"{words} >&-: {done.returncode} {done.stderr!r}")


def reader_gone(folder):
    """Nobody reads what quantize -v says: what it had half written is removed, and what was there stays."""
    deep, out = os.path.join(folder, "deep.gguf"), os.path.join(folder, "out.gguf")
    model(deep, [f"blk.{i}.ffn_up.weight" for i in range(2000)])
    with open(out, "wb") as file:
        file.write(b"old")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        said = run("quantize", "-v", deep, out, "Q8_0", code=1, stdout=gone).stderr
    expect("stopped" in said, f"quantize -v to nobody: {said!r}")
    with open(out, "rb") as file:
        expect(file.read() == b"old" and sorted(os.listdir(folder)) == ["deep.gguf", "out.gguf"], f"left: {os.listdir(folder)}")


def foreign_names(folder):
    """A name from a file moves no terminal's cursor: in lines of quantize -v, nor in the line of progress."""
    path, out = os.path.join(folder, "m.gguf"), os.path.join(folder, "q.gguf")
    model(path, ["blk.0.\033]0;title\007\033[2Jx.weight"])
    lines = run("quantize", "-v", path, out, "Q8_0").stdout
    expect("\033" not in lines and "\\x1b[2Jx" in lines, f"quantize -v: {lines!r}")
    main, side = os.openpty()
    done = subprocess.run([QUERN, "quantize", path, out, "Q8_0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=side)
    os.close(side)
    shown = os.read(main, 65536)
    os.close(main)
    expect(done.returncode == 0 and b"\033" not in shown and b"\\x1b[2Jx" in shown, f"progress: {shown!r}")


with tempfile.TemporaryDirectory() as made_here:
    for test in (help_texts, closed_files, reader_gone, foreign_names):
        place = os.path.join(made_here, test.__name__)
        os.mkdir(place)
        test(place)
print("verbs:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
