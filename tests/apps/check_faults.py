#!/usr/bin/env python3
"""Faults that users met, a test each, named after the fault: a model that changes on disk, a disk that is full, a terminal that is closed.
Usage: check_faults.py QUERN

Needs nothing but Python, /proc and models/stories.gguf."""
import fcntl
import json
import os
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

QUERN = os.path.abspath(sys.argv[1])
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
STORIES = os.path.join(ROOT, "models", "stories.gguf")
ECHO = "{% for m in messages %}{{ m.content }}{% endfor %}"
with open(QUERN, "rb") as program:
    SANITIZED = b"__asan_init" in program.read()  # and needs all the addresses there are
faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what[:600])


def usual_signals():
    """As a terminal starts a program, whatever started this one."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def run(*args, code=0, limits=None, **more):
    def before():
        usual_signals()
        if limits:
            limits()

    more.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([QUERN, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=300,
                          preexec_fn=before, **more)
    expect(done.returncode == code, f"{args}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


def start(*args, **more):
    more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": usual_signals, **more}
    return subprocess.Popen([QUERN, *args], **more)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def model(path, names, each=2048):
    """A GGUF file with a small matrix of zeros under each name."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(names), 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for i, name in enumerate(names):
        head += text(name) + struct.pack("<IQQIQ", 2, 256, each // 1024, 0, each * i)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        file.truncate(file.tell() + each * len(names))


def safetensors(path, shapes):
    """A file of zeros in f32."""
    head, at = {}, 0
    for name, shape in shapes.items():
        n = 4
        for d in shape:
            n *= d
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    top = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(top)) + top + bytes(at))


def hugging_face(folder, layers):
    """A llama of one head as a folder from Hugging Face."""
    os.mkdir(folder)
    shapes = {"model.embed_tokens.weight": (4, 32), "model.norm.weight": (32,)}
    for i in range(layers):
        shapes[f"model.layers.{i}.input_layernorm.weight"] = (32,)
        shapes[f"model.layers.{i}.self_attn.q_proj.weight"] = (32, 32)
    safetensors(os.path.join(folder, "model.safetensors"), shapes)
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers, "hidden_size": 32, "num_attention_heads": 1,
              "num_key_value_heads": 1, "intermediate_size": 32, "rms_norm_eps": 1e-5, "vocab_size": 4}
    words = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
             "added_tokens": [{"id": 3, "content": "<s>", "special": True}], "pre_tokenizer": {"type": "ByteLevel"}}
    for name, what in (("config.json", config), ("tokenizer.json", words), ("tokenizer_config.json", {"add_bos_token": False})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(what, file)


# ---- Tests, each in a folder of its own

def is_mapped(going, path):
    if going.poll() is not None:
        return None
    with open(f"/proc/{going.pid}/maps", encoding="utf-8", errors="replace") as file:
        maps = file.read()
    return os.path.realpath(path) in maps if maps else None


def waits_for_a_text(folder, path, *words):
    """Started, and asked for the file of a text that does not come: the model is open by then."""
    pipe = os.path.join(folder, "pipe")
    going = start(words[0], path, *words[1:], pipe)
    opened = []

    def is_read():  # a pipe that nobody reads cannot be opened
        try:
            opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return going.poll() is not None
        return True

    expect(until(is_read) and opened, f"{words}: the text is not asked for")
    seen = is_mapped(going, path)
    going.kill()
    going.communicate()
    for fd in opened:
        os.close(fd)
    return seen


def waits_for_a_reader(_, path, *words):
    """Started with a full pipe for its output, whose first bytes come when the model is open."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(writer, "wb") as to:
        going = start(*words, stdout=to)
    os.read(reader, 1)
    seen = is_mapped(going, path)
    going.kill()
    going.communicate()
    os.close(reader)
    return seen


def waits_for_a_terminal(_, path, *words):
    """The same with a terminal for the line of progress."""
    main, side = os.openpty()
    going = start(*words, stderr=side)
    os.close(side)
    os.read(main, 1)
    seen = is_mapped(going, path)
    going.kill()
    going.communicate()
    os.close(main)
    return seen


def works_long(_, path, *words):
    """With two threads, which are started when the model is open."""
    going = start(*words, "-t", "2")
    expect(until(lambda: going.poll() is not None or len(os.listdir(f"/proc/{going.pid}/task")) > 1), f"{words}: no thread")
    seen = is_mapped(going, path)
    going.kill()
    going.communicate()
    return seen


def model_files_cannot_be_had_without_a_map(folder):
    """--no-mmap, for each verb that reads a model; and without it the file is mapped, which is how this test would see it."""
    path, deep, out, top = (os.path.join(folder, name) for name in ("m.gguf", "deep.gguf", "out.gguf", "hf"))
    shutil.copy(STORIES, path)
    model(deep, [f"blk.{i}.ffn_up.weight" for i in range(2000)])
    hugging_face(top, 400)
    weights = os.path.join(top, "model.safetensors")
    os.mkfifo(os.path.join(folder, "pipe"))
    for how, of, words in ((waits_for_a_text, path, ("run", "-f")), (waits_for_a_text, path, ("eval", "-f")),
                           (waits_for_a_text, path, ("tokenize", "-f")), (waits_for_a_text, path, ("chat", "--chat-template-file")),
                           (waits_for_a_reader, path, ("plan", "-m", path, "--json", "--steps")), (works_long, path, ("bench", "-m", path, "-r", "1000")),
                           (waits_for_a_reader, deep, ("inspect", deep)), (waits_for_a_reader, deep, ("quantize", "-v", deep, out, "Q8_0")),
                           (waits_for_a_terminal, weights, ("convert", top, out, "-t", "1"))):
        expect(how(folder, of, *words), f"{words}: the file is not mapped, or this test looks in the wrong place")
        alone = words[:1] + ("--no-mmap",) + words[1:]
        expect(how(folder, of, *alone) is False, f"{alone}: the file is mapped, or nothing ran")
    for words in (("run", path, "-n", "1", "--seed", "1"), ("eval", path, "--ids", "1 2 3"), ("tokenize", path, "-p", "Once"), ("plan", "-m", path),
                  ("inspect", "--hash", path), ("quantize", path, out, "Q8_0")):
        answers = [re.sub(r"planned in .* ms", "", run(*words, *more).stdout) for more in ((), ("--no-mmap",))]
        answers[0] = answers[0].replace("mapped from the file, which the host does not pay,", "read into memory, beyond the plan,")
        expect(answers[0] == answers[1], f"{words}: another answer with --no-mmap: {answers}")
    for verb in ("run", "chat", "eval", "embed", "tokenize", "plan", "inspect", "quantize", "convert"):
        expect("--no-mmap" in run(verb, "--help").stdout, f"{verb} --help tells nothing of --no-mmap")
    expect("--no-mmap" in run("bench", "-m", path, "--help").stdout, "bench -m FILE --help tells nothing of --no-mmap")
    expect("are for models" in run("plan", "--example", "mnist", "--no-mmap", code=2).stderr, "plan --no-mmap without a model")


def a_model_that_gets_shorter_ends_a_conversation(folder):
    """cp over a model that is being talked with: with --no-mmap nothing happens, where a map gives SIGBUS."""
    path = os.path.join(folder, "m.gguf")
    shutil.copy(STORIES, path)
    going = start("chat", "--no-mmap", path, "--chat-template", ECHO, "-n", "4", "--seed", "1", "-t", "1", stdin=subprocess.PIPE)
    going.stdin.write(b"Once upon\n")
    going.stdin.flush()
    expect(os.read(going.stdout.fileno(), 1), "chat answers")
    os.truncate(path, 1000)
    said, complaint = going.communicate(b"a fox\n", timeout=60)
    expect(going.returncode == 0 and said.strip(), f"chat --no-mmap: {going.returncode} {said!r} {complaint!r}")


def a_limit_of_file_sizes_kills(folder):
    """RLIMIT_FSIZE sends SIGXFSZ: every verb that writes says what failed instead, and leaves what was there and nothing else."""
    deep, big, top, trace = (os.path.join(folder, name) for name in ("deep.gguf", "big.gguf", "hf", "w.pt.trace.json"))
    old = [os.path.join(folder, name) for name in ("out.gguf", "out.html", "out.json", "cache")]
    model(deep, [f"blk.{i}.ffn_up.weight" for i in range(300)])
    model(big, ["blk.0.ffn_up.weight"], 1 << 20)
    hugging_face(top, 40)
    events = [{"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(2000)]
    with open(trace, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)
    for name in old[:3]:
        with open(name, "w", encoding="utf-8") as file:
            file.write("old")
    recorded = os.path.join(folder, "recorded")
    os.mkdir(recorded)
    there = sorted(os.listdir(folder))
    few = ("-n", "4", "--seed", "1", "-t", "1")
    for words in (("quantize", deep, old[0], "Q8_0"), ("quantize", big, old[0], "Q8_0"), ("convert", top, old[0]),
                  ("profile", "html", trace, "-o", old[1]), ("profile", "trace_view", trace, "-o", old[2]),
                  ("profile", "overview", trace, "--json", "-o", old[2]), ("run", STORIES, "-p", "Once", *few, f"--profile={recorded}"),
                  ("run", STORIES, "-p", "Once upon a time", *few, "--prompt-cache", old[3]),
                  ("eval", STORIES, "--ids", "1 2 3", "--logits", os.path.join(folder, "logits"))):
        for bytes_ in (0, 1, 1024):
            done = run(*words, code=1, limits=lambda n=bytes_: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)))
            expect("File too large" in done.stderr, f"{words} in {bytes_} bytes: {done.stderr!r}")
            left = sorted(os.listdir(folder)), os.listdir(recorded)
            expect(left == (there, []), f"{words} in {bytes_} bytes: there is {left}")
            for name in old[:3]:
                with open(name, encoding="utf-8") as file:
                    expect(file.read() == "old", f"{words} in {bytes_} bytes: {name} has changed")
    with open(os.path.join(folder, "printed"), "w", encoding="utf-8") as file:
        done = subprocess.run([QUERN, "ops"], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: (
            usual_signals(), resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))))
    expect(done.returncode == 1 and "standard output could not be written" in done.stderr, f"ops: {done.returncode} {done.stderr!r}")


def a_closed_terminal_leaves_temporary_files(folder):
    """SIGHUP, which comes twice when a terminal is closed, ends a verb as Ctrl-C does: what is half written is removed."""
    deep, out, top, page = (os.path.join(folder, name) for name in ("deep.gguf", "out.gguf", "hf", "out.html"))
    model(deep, [f"blk.{i}.ffn_up.weight" for i in range(2000)])
    hugging_face(top, 400)
    runs = os.path.join(folder, "runs")
    os.mkdir(runs)
    events = [{"ph": "X", "cat": "cpu_op", "name": f"op{i % 50}", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(4000)]
    for worker in range(20):
        with open(os.path.join(runs, f"w{worker}.pt.trace.json"), "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events}, file)
    there = sorted(os.listdir(folder))
    for words in (("quantize", "-v", deep, out, "Q8_0"), ("convert", top, out, "-t", "1"), ("profile", "html", runs, "-o", page)):
        for ignored in (False, True):
            def before(ignored=ignored):
                usual_signals()
                if ignored:  # as nohup does
                    signal.signal(signal.SIGHUP, signal.SIG_IGN)

            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            main, side = os.openpty()
            going = start(*words, stdout=writer, stderr=side, preexec_fn=before)
            os.close(writer)
            os.close(side)
            expect(until(lambda: going.poll() is not None or sorted(os.listdir(folder)) != there), f"{words}: nothing is written")
            time.sleep(0.05)
            going.send_signal(signal.SIGHUP)
            time.sleep(0.05)
            going.send_signal(signal.SIGHUP)
            drained = b""
            while True:  # what is said goes somewhere, until all ends of both are closed
                ready = select.select([reader, main], [], [], 60)[0]
                try:
                    piece = b"".join(os.read(fd, 65536) for fd in ready)
                except OSError:  # a terminal without programs
                    piece = b""
                drained += piece
                if not piece:
                    break
            os.close(reader)
            os.close(main)
            code = going.wait(timeout=60)
            expect(code == (0 if ignored else 130), f"{words}, SIGHUP {'ignored' if ignored else 'sent'}: exit code {code}: {drained[-200:]!r}")
            made = [os.path.basename(words[-2] if words[0] == "quantize" else out if words[0] == "convert" else page)] if ignored else []
            left = sorted(os.listdir(folder))
            expect(left == sorted(there + made), f"{words}, SIGHUP {'ignored' if ignored else 'sent'}: there is {left}")
            for name in set(left) - set(there):
                os.remove(os.path.join(folder, name))
    server = start("profile", "serve", runs, "--port", "0")
    if server.stdout.readline():
        server.send_signal(signal.SIGHUP)
        expect(server.wait(timeout=60) == 0, f"serve: exit code {server.returncode}")
        server.communicate()
    else:
        expect(b"built without libmicrohttpd" in server.communicate()[1], "serve says nothing")


def a_page_is_poured_into_a_terminal(folder):
    """profile html without -o needs a file when it would write to a terminal, and says which option names it; pipes are fine."""
    trace = os.path.join(folder, "w.pt.trace.json")
    with open(trace, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}, file)
    for path in (trace, folder):
        main, side = os.openpty()
        going = start("profile", "html", path, stdin=side, stdout=side)
        os.close(side)
        shown = b""
        try:
            while piece := os.read(main, 65536):
                shown += piece
        except OSError:  # nobody is left who could write to it
            pass
        os.close(main)
        said = going.communicate()[1].decode()
        expect(going.returncode == 2 and shown == b"", f"html to a terminal: {going.returncode} {shown[:80]!r}")
        expect(said.startswith("quern profile html: ") and "-o FILE" in said and said.count("\n") == 1, f"html to a terminal: {said!r}")
        expect(run("profile", "html", path).stdout.startswith("<!doctype html>"), "html into a pipe")


def train(folder, *words):
    """Started, and about to make its first step: the head of the curve is the last thing in front of it."""
    curve = os.path.join(folder, "curve.csv")
    if os.path.exists(curve):
        os.remove(curve)
    going = start("train", "--example", "stories", "-t", "1", "--curve", curve, *words)
    expect(until(lambda: going.poll() is not None or (os.path.exists(curve) and os.path.getsize(curve))), f"train {words}: no curve")
    return going


def ticks_of(going):
    """What a process has had of processors."""
    with open(f"/proc/{going.pid}/stat", encoding="utf-8") as file:
        numbers = file.read().rsplit(")", 1)[1].split()
    return int(numbers[11]) + int(numbers[12])


def is_a_model(path):
    return run("run", path, "-n", "1", "--seed", "1").stdout != ""


def a_curve_that_cannot_be_written_costs_the_model(folder):
    """Who reads the curve goes away: the training ends as it should, the model is there, and the exit code tells."""
    curve, link, out = (os.path.join(folder, name) for name in ("curve", "link.gguf", "m.gguf"))
    os.mkfifo(curve)
    with open(out, "w", encoding="utf-8") as file:
        file.write("old")
    os.symlink("m.gguf", link)
    going = start("train", "--example", "stories", "--steps", "2", "-t", "1", "-o", link, "--curve", curve)
    with open(curve, encoding="utf-8") as file:
        expect(file.readline() == "step,rate,loss\n", "the head of the curve")
    said, told = (piece.decode() for piece in going.communicate())
    expect(going.returncode == 1 and f"{curve} ends before step 2: Broken pipe; the training goes on\n" in told, f"{going.returncode} {told!r}")
    expect(f"{out}: loss" in said and os.path.islink(link) and is_a_model(out), f"no model: {said!r} {told!r}")
    expect(sorted(os.listdir(folder)) == ["curve", "link.gguf", "m.gguf"], f"left: {os.listdir(folder)}")
    told = run("train", "--example", "stories", "--steps", "1", "--curve", "/dev/full", code=1).stderr
    expect(told == "quern train: /dev/full: No space left on device\n", f"--curve /dev/full is told before the training: {told!r}")


def a_trace_that_cannot_be_written_costs_the_model(folder):
    out, trace = os.path.join(folder, "m.gguf"), os.path.join(folder, "trace")
    going = train(folder, "--steps", "1", "-o", out, f"--profile={trace}")
    os.rmdir(trace)
    with open(trace, "w", encoding="utf-8"):
        pass
    said, told = (piece.decode() for piece in going.communicate())
    expect(going.returncode == 1 and "quern: recording: " in told and f"{out}: loss" in said, f"{going.returncode} {said!r} {told!r}")
    expect(is_a_model(out), "no model")


def an_interrupted_training_is_thrown_away(folder):
    """Ctrl-C: what there is gets a name of its own, what has the name that was asked for stays; and without -o nothing is promised."""
    out = os.path.join(folder, "m.gguf")
    with open(out, "w", encoding="utf-8") as file:
        file.write("old")
    going = train(folder, "--steps", "50", "-o", out)
    going.send_signal(signal.SIGINT)
    said, told = (piece.decode() for piece in going.communicate())
    steps = re.search(r"stopped after (\d+) of 50 steps; the model as it is now is written under another name\n", told)
    expect(going.returncode == 130 and steps, f"{going.returncode} {told!r}")
    with open(out, encoding="utf-8") as file:
        expect(file.read() == "old", "half a training replaced a model")
    made = os.path.join(folder, f"m.step-{steps.group(1) if steps else 0}.gguf")
    expect(f"{made}: loss" in said and os.path.exists(made) and is_a_model(made), f"nothing to go on from: {said!r} {os.listdir(folder)}")
    if os.path.exists(made):
        os.remove(made)
    going = train(folder, "--steps", "50")
    going.send_signal(signal.SIGINT)
    told = going.communicate()[1].decode()
    expect(going.returncode == 130 and told.endswith("of 50 steps; without -o no model is written\n"), f"without -o: {told!r}")
    expect(sorted(os.listdir(folder)) == ["curve.csv", "m.gguf"], f"left: {os.listdir(folder)}")


def a_model_replaces_another_before_it_is_checked(folder):
    """No memory for the check: what was there stays, and the new model is kept beside it."""
    out = os.path.join(folder, "m.gguf")
    for more in (1 << 20, 18 << 20):  # for the loss by the graph; for the file opened as a model
        with open(out, "w", encoding="utf-8") as file:
            file.write("old")
        going = train(folder, "--steps", "4", "-o", out)

        before = ticks_of(going)  # memory for steps is taken as the first one begins
        expect(until(lambda: going.poll() is not None or ticks_of(going) > before + os.sysconf("SC_CLK_TCK") // 7), "no step")
        with open(f"/proc/{going.pid}/statm", encoding="utf-8") as file:
            room = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE") + more
        resource.prlimit(going.pid, resource.RLIMIT_AS, (room, room))
        said, told = (piece.decode() for piece in going.communicate())
        kept = os.path.join(folder, f"m.new-{going.pid}.gguf")
        with open(out, "rb") as file:
            is_old = file.read() == b"old"
        if more > 1 << 20 and going.returncode == 0:  # there was room enough here
            expect(not is_old and not os.path.exists(kept), f"{said!r} {told!r}")
            continue
        expect(going.returncode == 1 and is_old and f"the new model is kept as {kept}, and {out} is as it was" in told,
               f"{going.returncode} {said!r} {told!r} {os.listdir(folder)}")
        expect(os.path.exists(kept) and is_a_model(kept), f"the new model is lost: {os.listdir(folder)}")


def safetensors_send_the_user_in_a_circle(folder):
    """What each verb says of a file that it does not take is done, and works."""
    top, lone, out, config = (os.path.join(folder, name) for name in ("hf", "lone.safetensors", "out.gguf", "config.json"))
    hugging_face(top, 1)
    weights = os.path.join(top, "model.safetensors")
    shutil.copy(weights, lone)
    commands = 0
    for words in (("quantize", weights, out, "Q8_0"), ("quantize", top, out, "F16"), ("quantize", lone, out, "Q8_0"), ("convert", lone, out),
                  ("run", lone), ("run", weights), ("run", top), ("tokenize", lone, "-p", "a"), ("plan", "-m", lone), ("convert", STORIES, out)):
        said = run(*words, code=1).stderr
        named = re.findall(r"'quern (\w+)(.*?)'", said)
        expect(said.count("\n") == 1 and len(named) == 1, f"{words}: {said!r}")
        verb, rest = named[0]
        has_config = words[0] != "convert" and lone not in words
        expect(verb == ("quantize" if STORIES in words else "convert" if has_config or words[0] in ("run", "tokenize", "plan") else "inspect"),
               f"{words}: {said!r}")
        if verb == "convert" and not has_config:  # which needs what is not here, and says so
            expect("config.json" in said, f"{words}: {said!r}")
            continue
        commands += 1
        run(verb, *({"inspect": [lone], "quantize": [STORIES, out, "Q4_0"]}.get(verb) or rest.split() or [top, out]))
        if verb != "inspect":
            expect("GGUF" in run("inspect", out).stdout, f"{words}: no {out}")
            os.remove(out)
    expect(commands == 7, f"{commands} commands were tried")
    shutil.copy(os.path.join(top, "config.json"), config)
    for verb, more in (("run", ()), ("quantize", (out, "Q8_0")), ("convert", (out,))):
        said = run(verb, config, *more, code=1).stderr
        expect("this is JSON" in said and "'" not in said, f"{verb} config.json: {said!r}")
    checkpoint = struct.pack("<Ii7iB", 0x616B3432, 1, 8, 8, 1, 1, 1, 4, 8, 1)
    n_weights = 3 * 8 + 4 * 8 + 4 * 64 + 3 * 64  # norms, tokens, attention, the network
    for name in ("a.dat", "a.bin"):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(checkpoint + bytes(256 - len(checkpoint)) + bytes(4 * n_weights))
    for verb, more in (("run", ()), ("quantize", (out, "Q8_0")), ("convert", (out,))):
        said = run(verb, os.path.join(folder, "a.dat"), *more, code=1).stderr
        expect("a checkpoint of llama2.c; 'quern convert' takes it when its name ends in .bin" in said, f"{verb} a.dat: {said!r}")
    with open(os.path.join(folder, "tokenizer.bin"), "wb") as file:
        file.write(struct.pack("<I", 4) + b"".join(struct.pack("<fI", 0, 4) + word for word in (b"<un>", b"<s>_", b"</s>", b"word")))
    run("convert", os.path.join(folder, "a.bin"), out)


def docs_leave_out_architectures_without_a_row(_):
    """docs/models.md names every architecture that llama.cpp knows and that has no row, and no other."""
    with open(os.path.join(ROOT, "src", "model", "archs.def"), encoding="utf-8") as file:
        rows = re.findall(r'^QN_ARCH\("([^"]+)"', file.read(), re.M)
    with open(os.path.join(ROOT, "tests", "model", "llama_names.txt"), encoding="utf-8") as file:
        names = file.read().split()
    with open(os.path.join(ROOT, "docs", "models.md"), encoding="utf-8") as file:
        section = file.read().split("## Architectures without a row")[1].split("\n## ")[0]
    told = [name for cell in re.findall(r"^\| .* \| (.*) \|$", section, re.M)[2:] for name in cell.split(", ")]
    missing = [name for name in names if name not in rows]
    for what, them in (("lacks", set(missing) - set(told)), ("should not have", set(told) - set(missing)),
                       ("has more than once", {name for name in told if told.count(name) > 1})):
        expect(not them, f"docs/models.md: the table of architectures without a row {what} {sorted(them)}")
    for number in (f"{len(names)} architectures", f"{len(set(names) & set(rows))} have a row", f"{len(missing)} have none"):
        expect(number in section, f"docs/models.md does not say '{number}'")


def docs_promise_flags_that_are_not_there(_):
    """Every flag that docs/models.md names is one of quern run."""
    with open(os.path.join(ROOT, "docs", "models.md"), encoding="utf-8") as file:
        flags = set(re.findall(r"`(--?[a-z][a-z-]*)[^`]*`", file.read()))
    expect(len(flags) >= 25, f"only {sorted(flags)} were found")
    for flag in sorted(flags):
        said = subprocess.run([QUERN, "run", flag], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
        expect("there is no option" not in said, f"docs/models.md: quern run has no {flag}")


with tempfile.TemporaryDirectory() as made_here:
    for test in (model_files_cannot_be_had_without_a_map, a_model_that_gets_shorter_ends_a_conversation, a_limit_of_file_sizes_kills,
                 a_closed_terminal_leaves_temporary_files, a_page_is_poured_into_a_terminal, safetensors_send_the_user_in_a_circle,
                 docs_leave_out_architectures_without_a_row, docs_promise_flags_that_are_not_there,
                 a_curve_that_cannot_be_written_costs_the_model, a_trace_that_cannot_be_written_costs_the_model,
                 an_interrupted_training_is_thrown_away) + (() if SANITIZED else (a_model_replaces_another_before_it_is_checked,)):
        place = os.path.join(made_here, test.__name__)
        os.mkdir(place)
        test(place)
print("faults:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
