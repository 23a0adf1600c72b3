#!/usr/bin/env python3
"""Language models through the command line: logits of every architecture in the zoo, the text and logits of stories260K, tokens of
the given vocabularies, and what bad files and flags are answered with. Usage: check_models.py QUERN DATA"""
import array
import filecmp
import glob
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

QUERN, DATA = sys.argv[1], sys.argv[2]
STORIES = os.path.join(DATA, "lm", "stories260K")
failures = passed = 0


def check(ok, what):
    global failures, passed
    passed += bool(ok)
    failures += not ok
    if not ok:
        print("FAIL", what)


def quern(*words, text=None):
    done = subprocess.run([QUERN, *words], input=text, capture_output=True, timeout=300)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


def floats(path):
    numbers = array.array("f")
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    return numbers


def nmse(got, want):
    return sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want)


def logits(model, ids, *words):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        code, _, said = quern("eval", "-m", model, "--ids", " ".join(map(str, ids)), "--logits", out, *words)
        check(code == 0, f"{model}: {said.strip()}")
        return floats(out) if code == 0 else None


def zoo():
    ids = [(37 * i + 11) % 128 for i in range(24)]
    files = sorted(glob.glob(os.path.join(DATA, "zoo", "*.gguf")))
    check(len(files) >= 22, f"only {len(files)} models in the zoo")
    for model in files:
        got, want = logits(model, ids), floats(model[:-5] + ".f32")
        if got is not None:
            error = nmse(got, want) if len(got) == len(want) else math.inf
            check(error < 1e-6, f"{model}: NMSE {error:.3g}")


# ---- An exact model of our own, in f64 without any library, to know what the weights themselves say: the given logits hold
# the rounding of an f16 cache and f16 sums, which is 9e-8 away from it.

def read_f32_model(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 24
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def take(form):
        nonlocal at
        values = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def string():
        nonlocal at
        length = take("<Q")
        at += length
        return data[at - length:at].decode("utf-8", "replace")

    def skip(kind):
        nonlocal at
        if kind == 8:
            string()
        elif kind == 9:
            item, count = take("<IQ")
            for _ in range(count):
                skip(item)
        else:
            at += sizes[kind]

    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    for _ in range(n_keys):
        string()
        skip(take("<I"))
    places = {}
    for _ in range(n_tensors):
        name = string()
        dims = [take("<Q") for _ in range(take("<I"))]
        _, offset = take("<IQ")
        places[name] = (dims, offset)
    start = (at + 31) // 32 * 32
    tensors = {}
    for name, (dims, offset) in places.items():
        count = math.prod(dims)
        flat = struct.unpack_from(f"<{count}f", data, start + offset)
        tensors[name] = [flat[i:i + dims[0]] for i in range(0, count, dims[0])] if len(dims) == 2 else flat
    return tensors


def exact_logits(w, ids, layers=5, heads=8, kv_heads=4, eps=1e-5):
    def product(matrix, x):
        return [math.fsum(a * b for a, b in zip(row, x)) for row in matrix]

    def norm(x, weight):
        scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
        return [v * scale * g for v, g in zip(x, weight)]

    def turn(x, position, length):
        out = list(x)
        for head in range(0, len(x), length):
            for i in range(0, length, 2):
                angle = position * 10000.0 ** (-i / length)
                a, b = x[head + i], x[head + i + 1]
                out[head + i] = a * math.cos(angle) - b * math.sin(angle)
                out[head + i + 1] = a * math.sin(angle) + b * math.cos(angle)
        return out

    length = len(w["token_embd.weight"][0]) // heads
    keys, values, rows = [[] for _ in range(layers)], [[] for _ in range(layers)], []
    for position, token in enumerate(ids):
        x = list(w["token_embd.weight"][token])
        for layer in range(layers):
            p = f"blk.{layer}."
            a = norm(x, w[p + "attn_norm.weight"])
            q = turn(product(w[p + "attn_q.weight"], a), position, length)
            keys[layer].append(turn(product(w[p + "attn_k.weight"], a), position, length))
            values[layer].append(product(w[p + "attn_v.weight"], a))
            out = []
            for head in range(heads):
                at, kv = head * length, head // (heads // kv_heads) * length
                scores = [math.fsum(q[at + i] * k[kv + i] for i in range(length)) / math.sqrt(length) for k in keys[layer]]
                top = max(scores)
                weights = [math.exp(s - top) for s in scores]
                total = math.fsum(weights)
                out += [math.fsum(e * v[kv + i] for e, v in zip(weights, values[layer])) / total for i in range(length)]
            x = [a + b for a, b in zip(x, product(w[p + "attn_output.weight"], out))]
            a = norm(x, w[p + "ffn_norm.weight"])
            gate, up = product(w[p + "ffn_gate.weight"], a), product(w[p + "ffn_up.weight"], a)
            x = [v + d for v, d in zip(x, product(w[p + "ffn_down.weight"], [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]))]
        rows += product(w.get("output.weight", w["token_embd.weight"]), norm(x, w["output_norm.weight"]))
    return rows


def stories():
    with open(os.path.join(STORIES, "tokens.txt"), encoding="utf-8") as file:
        ids = [int(word) for word in file.read().split()]
    for kind, bound in (("f32", 2e-7), ("f16", 1e-6), ("q8_0", 2e-2), ("q4_0", 2e-2), ("q5_1", 2e-2)):
        model, want = os.path.join(STORIES, f"stories260K-{kind}.gguf"), floats(os.path.join(STORIES, f"logits-{kind}.bin"))
        one, two = logits(model, ids, "-t", "1"), logits(model, ids, "-t", "2")
        check(one is not None and one == two, f"{kind}: one and two threads differ")
        check(one is not None and nmse(one, want) <= bound, f"{kind}: NMSE {nmse(one, want):.3g} over {bound}")
    model = os.path.join(STORIES, "stories260K-f32.gguf")
    exact = nmse(logits(model, ids[:16]), exact_logits(read_f32_model(model), ids[:16]))
    check(exact <= 1e-11, f"f32: NMSE {exact:.3g} to the exact logits")
    for kind in ("f32", "f16"):
        code, text, said = quern("run", "-m", os.path.join(STORIES, f"stories260K-{kind}.gguf"), "-n", "200", "--temp", "0")
        with open(os.path.join(STORIES, f"greedy-{kind}.txt"), "rb") as file:
            check(code == 0 and text.strip() == file.read().strip(), f"{kind}: the greedy text differs {said}")


def vocabularies():
    for model in sorted(glob.glob(os.path.join(DATA, "vocab", "*.gguf"))):
        code, out, said = quern("tokenize", "-m", model, "-p", "Hello, world", "--ids")
        check(code == 0 and out.split(), f"{model}: {said}")


def answers():
    model = os.path.join(STORIES, "stories260K-f32.gguf")
    for words, code, sentence in (
            (["run"], 2, "which model"),
            (["run", "-m", "/no/such.gguf"], 1, "No such file"),
            (["run", "-m", model, "--temp", "hot"], 2, "takes a number"),
            (["run", "-m", model, "-n", "x"], 2, "takes a number"),
            (["run", "-m", model, "-ctk", "q8_0"], 1, "multiples of 32"),
            (["run", "-m", model, "--nonsense"], 2, "no option"),
            (["run", model, "-m", model], 2, "one model"),
            (["run", model, "-ngl", "2"], 2, "0 or all"),
            (["run", model, "-fa", "off"], 2, "one op"),
            (["run", model, "-p", "word " * 400, "-c", "64"], 1, "context of 64"),
            (["run", model, "-p", "Once upon", "-n", "2", "--prompt-cache", "/no/such/folder/x"], 1, "cannot be written"),
            (["bench", model, "-p", "0", "-n", "0"], 2, "nothing to measure"),
            (["bench", model, "-d", "deep"], 2, "-d takes a number"),
            (["bench", model, "-p", "0", "-n", "8", "-d", "60", "-c", "64", "-r", "1"], 1, "context of 64"),
            (["train", "--example", "stories", "--steps", "1", "-o", "/no/such/folder/x.gguf"], 1, "cannot be created"),
            (["run", "-m", model, "--grammar", 'root = "a"'], 1, "grammar"),
            (["run", "-m", model, "--memory-cap", "1000"], 1, "the cap is 1000"),
            (["run", "-m", os.path.join(STORIES, "README.md")], 1, ""),
            (["chat", "-m", model], 1, "chat template"),
            (["embed", "-m", model, "-p", "x"], 1, "encoder"),
            (["eval", "-m", model, "--ids", "1 2 x"], 2, "--ids takes numbers"),
            (["eval", "-m", model, "--ids", "1 99999"], 1, "the vocabulary has 512"),
            (["eval", "-m", model, "--ids", "1", "--logits", "/no/such/folder/x"], 1, "cannot be written"),
            (["bench", "-m", model, "-o", "xml"], 2, "md, csv or json")):
        got, _, said = quern(*words)
        check(got == code and sentence in said and said.startswith("quern"), f"{words}: {got}: {said.strip()}")
    check(quern("run", model, "-p", "word " * 400, "-c", "64")[1] == b"", "a prompt that does not fit is printed")
    code, text, said = quern("bench", model, "-p", "5", "-n", "3", "-d", "0,40", "-np", "2", "-r", "1", "-o", "csv")
    tests = [line.split(b",")[6] for line in text.splitlines()[1:]]
    check(code == 0 and tests == [b"pp5", b"pp5 @ d40", b"tg3", b"tg3 @ d40"], f"bench behind other tokens: {code}, {tests}, {said}")
    code, text, said = quern("run", model, "-p", "Once", "-n", "3", "-c", "0", "--temp", "0", "-ngl", "0", "-fa", "on", "-ub", "8", "-no-cnv")
    check(code == 0 and text.startswith(b"Once"), f"a context as the model has it: {code}, {said}")
    long = subprocess.Popen([QUERN, "bench", model, "-p", "0", "-n", "1", "-d", "400000", "-r", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    long.send_signal(signal.SIGINT)
    said = long.communicate(timeout=60)[1]
    check(long.returncode == 130 and not said, f"Ctrl-C while a long prompt is read: {long.returncode}, {said}")
    with open("/dev/full", "wb") as full:
        for words in (["run", model, "-n", "3"], ["tokenize", model, "-p", "Once", "--ids"], ["plan", model], ["eval", model, "--ids", "1"]):
            done = subprocess.run([QUERN, *words], stdout=full, stderr=subprocess.PIPE, timeout=300)
            check(done.returncode == 1 and b"written" in done.stderr, f"{words} to a full disk: {done.returncode}, {done.stderr}")
    story = ["run", "-m", model, "-p", "Tim", "-n", "40", "-s", "7", "--no-display-prompt"]
    check(quern(*story)[1] == quern(*story)[1] != b"", "the same seed gives another text")
    code, text, said = quern(*story, "--grammar", 'root ::= "yes" | "no"')
    check(code == 0 and text.strip() in (b"yes", b"no"), f"a grammar is not kept: {text} {said}")
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.join(folder, "cache")
        first, second = (quern(*story, "--prompt-cache", cache) for _ in range(2))
        check(first[0] == second[0] == 0 and first[1] == second[1] == quern(*story)[1], f"a prompt cache changes the text: {second[2]}")
        own = os.path.join(folder, "own.gguf")
        for words, sentence in ((["quantize", own, own, "q8_0"], "another name"), (["eval", "-m", own, "--ids", "1", "--logits", own], "another name"),
                                (["run", own, "-p", "Once upon", "-n", "2", "--prompt-cache", own], "no cache file"),
                                (["quantize", own, own + ".q", "q8_0", "-t", "x"], "takes a number")):
            shutil.copyfile(model, own)
            code, _, said = quern(*words)
            check(code != 0 and sentence in said and filecmp.cmp(model, own, False), f"{words}: {code}, {said.strip()}")
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    code, text, said = quern("chat", "-m", model, "--chat-template", template, "-n", "10", "-s", "1", text=b"Hello\n/clear\nOnce\n")
    check(code == 0 and text.count(b"\n") >= 2, f"chat: {said}")
    code, text, said = quern("chat", "-m", model, "--chat-template", template, "-n", "3", "-s", "1", text=b"caf\xe9 \xf0\x9f\nOnce\n")
    check(code == 0 and text.count(b"\n") >= 2, f"chat with stray bytes: {said}")


def interrupted():
    """Ctrl-C while text is made, and while chat waits for a line."""
    model = os.path.join(STORIES, "stories260K-f32.gguf")
    for words, line in ((["run", model, "--ignore-eos", "-c", "100000", "-t", "1"], b""),
                        (["chat", model, "--chat-template", "{{ messages[-1].content }}", "-n", "3", "-t", "1"], b"Once\n")):
        going = subprocess.Popen([QUERN, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        going.stdin.write(line)
        going.stdin.flush()
        first = going.stdout.read(1)
        time.sleep(0.5)
        going.send_signal(signal.SIGINT)
        try:
            going.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            going.kill()
        check(first and going.wait() == 130, f"{words[0]} and Ctrl-C: exit {going.returncode}")


zoo()
interrupted()
stories()
vocabularies()
answers()
print(f"{passed} passed, {failures} failed")
sys.exit(1 if failures else 0)
