#!/usr/bin/env python3
"""The quern command at its edges: what every verb says and returns, and what it leaves on the disk. Usage: check_verbs.py QUERN

Needs nothing but Python and models/stories.gguf. tests/format and tests/prof ask more of the verbs about files and traces.
"""
import csv
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

QUERN = os.path.abspath(sys.argv[1])
STORIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "stories.gguf")
VERBS = ("ops", "bench", "devices", "inspect", "quantize", "convert", "run", "chat", "tokenize", "embed", "eval", "plan", "train",
         "graph", "profile")
BENCHES = ("dispatch", "plan", "limits", "ops", "profile")
with open(QUERN, "rb") as program:
    SANITIZED = b"__asan_init" in program.read()  # and needs all the addresses there are
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
    for words in [()] + [(verb,) for verb in VERBS] + [("profile", "html"), ("profile", "serve")] + [("bench", b) for b in BENCHES]:
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


def wrong_words(folder):
    """What cannot be meant is refused before anything is done, with a sentence that names it."""
    text = os.path.join(folder, "t.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("Once upon a time there was a fox. " * 20)
    for words in [("bench", b, "--nothing") for b in BENCHES] + [
            ("bench", "dispatch", "x"), ("bench", "plan", "x"), ("bench", "limits", "5x"), ("bench", "limits", "0"),
            ("bench", "limits", "99999999999999999999"), ("bench", "ops", "--ms", "inf"), ("bench", "ops", "--ms", "5x"),
            ("eval", STORIES, "-f", text, "-c", "1"), ("eval", STORIES, "-f", text, "-c", "2"),
            ("plan",), ("plan", "--cap", "-5", "--example", "gpt2"), ("plan", "--cap", "0", "--example", "gpt2"),
            ("plan", "-c", "5", "x.qir"), ("plan", "x.qir", "--example", "gpt2"), ("plan", STORIES, "--strict"),
            ("plan", "--example", "mnist", "--device", "vulkan:x"), ("plan", STORIES, "--device", "vulkan:"),
            ("run", STORIES, "--device", "vulkan:-1"), ("train", "--example", "mnist", "--device", "vulkanx"),
            ("train", "--example", "mnist", "--require", "nan"), ("run", STORIES, "--temp", "nan"),
            ("run", STORIES, "--samplers", "x;y"), ("run", STORIES, "-n", "1e3"), ("run", STORIES, "-c", "-1")]:
        done = run(*words, code=2)
        expect(done.stderr.startswith(f"quern {words[0]}: ") and not done.stdout, f"{words}: {done.stdout!r} {done.stderr!r}")
    expect("perplexity" in run("eval", STORIES, "-f", text, "-c", "3").stdout, "eval -c 3")
    for device in ("vulkan", "vulkan:0", "vulkan:99"):  # whether there is one or not, the name is understood
        said = subprocess.run([QUERN, "plan", STORIES, "--device", device], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        expect("backend" not in said.stderr and said.returncode in (0, 1), f"--device {device}: {said.stderr}")


def texts(folder):
    """A text that never ends, one that there is no memory for, one that never comes."""
    expect("more than a GiB" in run("tokenize", STORIES, "-f", "/dev/zero", code=1).stderr, "an endless text")
    expect("directory" in run("run", STORIES, "-f", folder, code=1).stderr, "a folder for a text")
    words = os.path.join(folder, "words.csv")
    with open(words, "w", encoding="utf-8") as file:
        file.write("op,shape\nadd,2\n")
    for before, says in ((folder, "cannot be read"), (words + "x", "cannot be read"), (words, "has no row")):
        done = run("bench", "ops", "--op", "add", "--against", before, code=1)
        expect(says in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, f"--against {before}: {done.stderr!r}")

    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    if not SANITIZED:
        expect("no memory" in run("tokenize", STORIES, "-f", "/dev/zero", code=1, preexec_fn=little_memory).stderr, "no memory for a text")
    pipe = os.path.join(folder, "pipe")
    os.mkfifo(pipe)
    for verb in ("run", "tokenize", "eval"):
        going = subprocess.Popen([QUERN, verb, STORIES, "-f", pipe], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        with open(pipe, "w", encoding="utf-8") as writer:  # which waits for the reader
            time.sleep(0.2)
            going.send_signal(signal.SIGINT)
            try:
                out, said = going.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                going.kill()
                out, said = going.communicate()
            writer.close()
        expect(going.returncode == 130 and not out and not said, f"{verb}: Ctrl-C while it reads: {going.returncode} {out!r} {said!r}")


def benches(folder):
    """What bench prints can be read by a program: a baseline saved again by another one, a name with anything in it."""
    before = os.path.join(folder, "before.csv")
    words = ("bench", "ops", "--op", "get_rows", "--shape", "10000x64", "--ms", "1", "-t", "1,2")
    with open(before, "w", encoding="utf-8") as file:
        csv.writer(file).writerows([["op", "shape", "dtype", "threads", "ns"], ["get_rows", "4096 of 10000x64", "f32", 1, 50000]])
    done = run(*words, "--against", before, "-o", "json")
    with_times = {row["threads"]: row["times"] for row in json.loads(done.stdout)["rows"]}
    expect(with_times[1] > 0 and with_times[2] is None, f"--against of one row: {with_times}")
    expect("1 of 2 rows have no times" in done.stderr, f"--against of one row: {done.stderr!r}")
    for op, says in (("relu", "no row times it"), ("nothing", "no op")):
        said = run("bench", "ops", "--op", op, code=2).stderr
        expect(says in said and "--list" in said, f"bench ops --op {op}: {said!r}")
    path = os.path.join(folder, "m.gguf")
    with open(STORIES, "rb") as file:
        named = file.read().replace(b"Quern stories", b'a\\b"\xff\xc3\xa9' + b"x" * 6, 1)
    with open(path, "wb") as file:
        file.write(named)
    rows = json.loads(run("bench", "-m", path, "-p", "4", "-n", "0", "-r", "1", "-o", "json").stdout)
    expect(rows[0]["model"] == 'a\\b"\ufffd\xe9xxxxxx', f"bench -m -o json: {rows}")


def recorded_bench(folder):
    """bench profile runs its ops, wherever their scratch comes to lie."""
    if SANITIZED:  # kernels that are checked take minutes
        return
    done = subprocess.run([QUERN, "bench", "profile", f"--profile={folder}"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    expect("300 ops of" in done.stdout and "events recorded" in done.stderr, f"bench profile: {done.stdout!r} {done.stderr!r}")


def inputs_stay(folder):
    """The curve of a training is not written over the model it goes on from."""
    path = os.path.join(folder, "m.gguf")
    shutil.copy(STORIES, path)
    os.symlink("m.gguf", os.path.join(folder, "link"))
    for curve in (path, os.path.join(folder, "link")):
        said = run("train", "--example", "stories", "--steps", "1", "--from", path, "--curve", curve, code=2).stderr
        expect("is what is read" in said, f"--curve {curve}: {said!r}")
    with open(path, "rb") as file, open(STORIES, "rb") as other:
        expect(file.read() == other.read(), "--curve left the model as it was")


def many_gradients(folder):
    """As many gradients as are asked for, and names of any length."""
    names = [f"x{i}" for i in range(300)] + ["y" * 400]
    lines = ["quern graph 1"] + [f"input %{name} f32[4]" for name in names] + ["%s0 = add %x0 %x1"]
    lines += [f"%s{i + 1} = add %s{i} %{name}" for i, name in enumerate(names[2:])]
    path = os.path.join(folder, "many.qir")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + [f"%loss = sum %s{len(names) - 2}", 'output %loss "loss"', ""]))
    shown = run("graph", path, "--grad", "loss", "--wrt", ",".join(names)).stdout
    expect(all(f'"grad {name}"' in shown for name in names), f"{shown.count('grad ')} gradients")
    for loss, wrt in (("loss", "x1,zz"), ("los", "x1")):
        expect("there is no" in run("graph", path, "--grad", loss, "--wrt", wrt, code=1).stderr, f"--grad {loss} --wrt {wrt}")


def symbol_names(folder):
    """A symbol that the graph does not have is a word too many for both verbs that take them."""
    path = os.path.join(folder, "g.qir")
    with open(path, "w", encoding="utf-8") as file:
        file.write('quern graph 1\nsymbol n 1..8\ninput %x f32[n]\n%y = sqr %x\noutput %y "y"\n')
    for verb in ("graph", "plan"):
        expect("there is no symbol 'm'" in run(verb, path, "--bind", "m=2", code=2).stderr, f"{verb} --bind m=2")
        expect("needs a number" in run(verb, path, "--bind", "n=x", code=2).stderr, f"{verb} --bind n=x")


def pass_names(folder):
    """Names of no pass or rule are refused with those that there are."""
    path = os.path.join(folder, "g.qir")
    with open(path, "w", encoding="utf-8") as file:
        file.write('quern graph 1\ninput %x f32[4]\n%y = sqr %x\noutput %y "y"\n')
    for words, code in ((("--skip", "neg_ne"), 1), (("--skip", "fuse,nothing"), 1), (("--print-after", "neg_neg"), 2),
                        (("--print-after", "nothing"), 2)):
        done = run("graph", path, "--passes", "all", *words, code=code)
        expect(f"'{words[1].split(',')[-1]}'; passes are fold, rewrite, " in done.stderr and not done.stdout, f"{words}: {done.stderr!r}")
    for words in (("--skip", "fuse,neg_neg,same,linear_bias"), ("--print-after", "dce"), ("--print-after", "all")):
        expect("output %1" in run("graph", path, "--passes", "all", *words).stdout, f"{words}")
    for words in (("fold", "--print-after", "dce"), ("all", "--skip", "dce", "--print-after", "dce")):
        done = run("graph", path, "--passes", *words, code=1)
        expect("after 'dce', which did not run" in done.stderr and not done.stdout, f"{words}: {done.stderr!r}")


def profile_folder(folder):
    """A folder that no trace can be written into is told before the work, and nothing is lost by then."""
    path = os.path.join(folder, "file")
    with open(path, "w", encoding="utf-8") as file:
        file.write("kept")
    for words in (("run", STORIES, "-p", "Once", "-n", "4"), ("eval", STORIES, "-f", path), ("embed", STORIES, "-p", "Once"),
                  ("bench", "-m", STORIES), ("bench", "plan"), ("bench", "ops"), ("bench", "dispatch"), ("bench", "profile"),
                  ("train", "--example", "stories", "--steps", "1", "--curve", path)):
        done = run(*words, f"--profile={path}", code=1)
        expect("quern: recording: " in done.stderr and path in done.stderr, f"{words}: {done.stderr!r}")
        expect(done.stdout.count("\n") <= 1, f"{words}: what it did before: {done.stdout!r}")  # a head line of a bench
    done = run("bench", "profile", path, f"--profile={path}", code=1)
    expect(done.stderr.count("\n") == 1, f"bench profile looked at its trace before: {done.stderr!r}")
    with open(path, encoding="utf-8") as file:
        expect(file.read() == "kept", "--curve with a folder of no use left the file as it was")


def long_contexts(_):
    """A context that is never filled takes no memory: its cache would be 200 MB."""
    if SANITIZED:
        return
    going = subprocess.Popen([QUERN, "run", STORIES, "-p", "Once", "-n", "3", "-c", "200000", "-t", "1"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(going.pid, 0)
    going.returncode = os.waitstatus_to_exitcode(status)
    expect(going.returncode == 0 and used.ru_maxrss < 120 << 10, f"-c 200000: {going.returncode}, {used.ru_maxrss} KB")


def slow_clients(folder):
    """However many clients keep a server waiting for their question, who asks is answered."""
    trace = os.path.join(folder, "a.pt.trace.json")
    with open(trace, "w", encoding="utf-8") as file:
        file.write('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    server = subprocess.Popen([QUERN, "profile", "serve", folder, "--port", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()
    if not address:
        expect("built without libmicrohttpd" in server.communicate()[1], "serve says nothing")
        return
    port = int(address.rstrip("/").rsplit(":", 1)[1])
    head = f"GET /api/index HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()

    def ask(way):
        try:
            way.sendall(head + b"\r\n")
            return way.recv(65536).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    slow = []
    for i in range(300):
        way = socket.create_connection(("127.0.0.1", port), timeout=20)
        if i % 3:
            way.sendall(head[:i % 40 + 1])
        elif i % 2:  # or who does not take the answer
            way.sendall(head.replace(b"/api/index", b"/") + b"\r\n")
        if i == 150:
            expect(ask(way), "a question among slow ones")
        slow.append(way)
        for other in slow[-10:]:  # who sends a byte now and then is slow all the same
            try:
                other.sendall(b"X")
            except OSError:
                pass
    with socket.create_connection(("127.0.0.1", port), timeout=20) as way:
        expect(ask(way) and ask(way), "two questions after 300 slow ones")
    server.send_signal(signal.SIGINT)
    expect(server.wait(timeout=20) == 0, "the server ends while slow clients wait")
    for way in slow:
        way.close()


with tempfile.TemporaryDirectory() as made_here:
    for test in (help_texts, closed_files, reader_gone, foreign_names, wrong_words, texts, benches, recorded_bench, inputs_stay, many_gradients,
                 symbol_names, pass_names, profile_folder, long_contexts, slow_clients):
        place = os.path.join(made_here, test.__name__)
        os.mkdir(place)
        test(place)
print("verbs:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
