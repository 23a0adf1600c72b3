#!/usr/bin/env python3
"""What people who run language models met: answers that stayed empty, a date of 1970, a GPU that was none, options that were lost, a list that
was cut. Usage: check_chat.py QUERN

Needs nothing but Python and models/stories.gguf."""
import datetime
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
STORIES = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "stories.gguf"))
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what[:600])


def run(*words, code=0, text="", **more):
    done = subprocess.run([QUERN, *words], input=text, capture_output=True, text=True, errors="replace", timeout=300, **more)
    expect(done.returncode == code, f"{words}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


def chat(*words, text, code=0, template=TEMPLATE):
    return run("chat", STORIES, "--seed", "1", "--chat-template", template, *words, text=text, code=code)


def every_answer_follows_the_grammar():
    """A grammar or a schema holds for each answer from its first byte on: none is empty because the one before was complete."""
    asked = "Give me a colour.\nGive me another colour.\nAnd one more.\n"
    answers = chat("--grammar", 'root ::= "yes" | "no"', text=asked).stdout.split()
    expect(len(answers) == 3 and set(answers) <= {"yes", "no"}, f"--grammar: {answers}")
    answers = chat("-j", '{"enum": ["red", "green", "blue"]}', text=asked).stdout.split()
    expect(len(answers) == 3 and set(answers) <= {'"red"', '"green"', '"blue"'}, f"-j: {answers}")
    cut = chat("--grammar", 'root ::= "abcdefgh"', "-n", "2", text="1\n2\n").stdout.split()  # an answer cut short is no beginning
    expect(len(cut) == 2 and cut[0] == cut[1] and "abcdefgh".startswith(cut[0]), f"-n 2: {cut}")
    said = chat("--grammar", 'root ::= "yes"', text="1\n/clear\n2\n").stdout.split()
    expect(said == ["yes", "yes"], f"after /clear: {said}")


def penalties_count_the_conversation_once():
    """Each answer sees the conversation as a program that is handed all of it at once does: a penalty counts no token twice."""
    words = ("--temp", "0", "--repeat-last-n", "-1", "--frequency-penalty", "1.5", "-n", "12")
    lines = ["Once upon a time there was a fox. ", "One day the fox met a dog. "]
    both = chat(*words, text="\n".join(lines) + "\n").stdout.split("\n")
    whole = lines[0] + both[0] + lines[1]
    alone = run("run", STORIES, "-p", whole, "--no-display-prompt", *words).stdout
    expect(both[1] and both[1] == alone.rstrip("\n"), f"the second answer is {both[1]!r}; to the same text at once it is {alone!r}")


def today_is_not_1970():
    """A template that asks for the date is told today's, where the person is who asks."""
    template = '{{ raise_exception("today is " + strftime_now("%Y-%m-%d %H")) }}'
    for hours in (-14, -5, 0, 13):
        zone = datetime.timezone(datetime.timedelta(hours=hours))
        here = dict(os.environ, TZ=f"<there>{-hours:+d}")  # which counts west of Greenwich
        before = datetime.datetime.now(zone)
        said = run("chat", STORIES, "--chat-template", template, text="hi\n", code=1, env=here).stderr
        times = [f"today is {time:%Y-%m-%d %H}" for time in (before, datetime.datetime.now(zone))]
        expect(any(time in said for time in times), f"{hours} hours from UTC: {said!r}, not {times}")


def gpu_layers_take_no_software_device():
    """-ngl 99 stands in recipes for every machine: a driver that only plays a GPU is taken when --device names it, and then it is said."""
    devices = json.loads(run("devices", "--json").stdout)["devices"]
    words = ("run", STORIES, "-p", "Once upon a time", "-n", "3", "--temp", "0", "-t", "1")
    software = [f"{device['backend']}:{device['index']}" for device in devices if "software" in device["features"]]
    if all(device["backend"] == "cpu" or "software" in device["features"] for device in devices):
        plain = run(*words)
        for layers in ("99", "all", "-1"):
            done = run(*words, "-ngl", layers)
            expect(done.stdout == plain.stdout and "; the model runs on the CPU\n" in done.stderr, f"-ngl {layers}: {done.stderr!r}")
            expect(not software or devices[-1]["name"] in done.stderr, f"-ngl {layers} names what is there: {done.stderr!r}")
        expect("CPU" not in plain.stderr and "CPU" not in run(*words, "-ngl", "0").stderr, "-ngl 0 needs no word")
    for name in software:
        said = run(*words, "--device", name, "-ngl", "99").stderr
        expect(f"{name} is " in said and "a driver that computes on the CPU" in said, f"--device {name}: {said!r}")


def every_reverse_prompt_stops():
    """Each -r is one more text to stop at, whatever their order; a second one does not take the place of the first."""
    words = ("run", STORIES, "-p", "Once upon a time", "-n", "40", "--temp", "0", "-t", "1", "--no-display-prompt")
    text = run(*words).stdout[:-1]  # the line end is the command's
    parts = text.split(" ")
    late, early = parts[12], parts[5]
    expect(late not in " ".join(parts[:12]) and early not in " ".join(parts[:5]), f"the story has words to stop at: {text!r}")
    for stops in ((late, early), (early, late), (early, "zzz"), ("zzz", "yyy", early)):
        done = run(*words, *(word for stop in stops for word in ("-r", stop)))
        expect(done.stdout[:-1] == text[:text.index(early)], f"-r {stops}: {done.stdout!r}")
        expect("a stop was reached" in done.stderr and "more than once" not in done.stderr, f"-r {stops}: {done.stderr!r}")
    done = run(*words, "--reverse-prompt=" + late, "-r", "zzz")
    expect(done.stdout[:-1] == text[:text.index(late)], f"--reverse-prompt: {done.stdout!r}")
    many = [word for i in range(65) for word in ("-r", f"zz{i}")]
    expect("more values than there is room for" in run(*words, *many, code=2).stderr and run(*words, *many[2:]).stdout[:-1] == text,
           "64 are many")


def repeated_options_are_said():
    """Of an option that has one value the last one counts, under whatever name, and a line says so: for each verb's parser."""
    def said(*words, code=0, **more):
        return run(*words, code=code, **more).stderr.count(" is given more than once, and the last one counts\n")

    short = ("run", STORIES, "-p", "Once", "--temp", "0")
    for words, times in ((("-n", "9", "-n", "3"), 1), (("-n", "9", "--predict=8", "--n-predict", "3"), 2), (("-n", "3", "-n", "3"), 0),
                         (("-n", "3", "-t", "1", "-t", "2", "--threads", "2"), 1), (("-n", "3", "--profile=a", "--profile=b"), 1)):
        done = run(*short, *words)
        expect(done.stderr.count("is given more than once") == times and "then 3" in done.stderr, f"{words}: {done.stderr!r}")
    expect(os.path.isdir("b") and not os.path.exists("a"), "--profile: the last one counts")
    with open("g.qir", "w", encoding="utf-8") as file:
        file.write('quern graph 1\nsymbol n 1..8\ninput %x f32[n]\n%y = sqr %x\noutput %y "y"\n')
    with open("t.pt.trace.json", "w", encoding="utf-8") as file:
        file.write('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    for words in (("chat", STORIES, "--temp", "0", "--temp", "1", "--chat-template", TEMPLATE), ("plan", "g.qir", "--bind", "n=2", "--bind", "n=3"),
                  ("graph", "g.qir", "--bind", "n=2", "--bind", "n=3"), ("inspect", STORIES, "--keys=a", "--keys=b"),
                  ("profile", "operation", "t.pt.trace.json", "--top", "1", "--top=2"),
                  ("profile", "operation", "t.pt.trace.json", "--owner", "id", "--owner", "time"),
                  ("profile", "html", "t.pt.trace.json", "-o", "1.html", "-o", "2.html"),
                  ("bench", "ops", "--list", "--op", "add", "--op", "mul"), ("bench", "ops", "--op", "mul", "-t", "1", "--threads", "2", "--list"),
                  ("tokenize", STORIES, "-p", "a", "-p", "b"), ("embed", STORIES, "-p", "a", "-p", "b")):
        code = 1 if words[0] == "embed" else 0
        expect(said(*words, code=code) == 1, f"{words}: {run(*words, code=code).stderr!r}")
    expect(said("graph", "g.qir", "--verify", "--verify") == 0, "a word without a value says the same twice")
    run("graph", "g.qir", "--verify", "--dot", code=2)
    for types in (("attn_q=F16", "attn_k=F16"), ("attn_q=F16,attn_k=F16",)):  # a list, however it is cut
        done = run("quantize", STORIES, f"{len(types)}.gguf", "Q8_0", *(word for kind in types for word in ("--tensor-type", kind)))
        expect("more than once" not in done.stderr and "matches no" not in done.stderr, f"--tensor-type {types}: {done.stderr!r}")
    with open("1.gguf", "rb") as one, open("2.gguf", "rb") as two:
        expect(one.read() == two.read(), "two --tensor-type are one list")


def text_key(name, value):
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQ", 8, len(value)) + value.encode()


def unknown_architectures_are_told_what_is_near():
    """A file of an architecture that has no row: the sentence is whole, names what is near, and where all of them stand."""
    root = os.path.join(os.path.dirname(STORIES), "..")
    with open(os.path.join(root, "src", "model", "archs.def"), encoding="utf-8") as file:
        names = re.findall(r'^QN_ARCH\("([^"]+)"', file.read(), re.M)
    with open(os.path.join(root, "docs", "models.md"), encoding="utf-8") as file:
        section = file.read().split("## Architectures\n")[1].split("\n## ")[0]
    listed = section.split(": ", 1)[1].replace("\n", " ").strip().rstrip(".").split(", ")
    expect(listed == names and f"These {len(names)} arch" in section, f"docs/models.md lists {listed}, the rows are {names}")
    for given, near in (("nosuch", ""), ("llama5", "; near it is 'llama', 'llama4'"), ("cohere2-moe", "; near it is 'cohere2'"),
                        ("QWEN2", "; near it is 'qwen2'"), ("x" * 300, "")):
        with open("arch.gguf", "wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text_key("general.architecture", given))
        said = run("run", "arch.gguf", "-p", "x", code=1).stderr
        expect(f"the architecture '{given[:47]}' is none of the {len(names)} that are known{near}" in said, f"{given[:20]}: {said!r}")
        expect(said.endswith("; docs/models.md lists them all\n"), f"{given[:20]}: {said!r}")
    os.mkdir("hf")
    with open("hf/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 2) + b"{}")
    shown = run("convert", "--help").stdout.split()
    for given, near in (("NobodysModel", ""), ("Qwen3MoEForCausalLM", "; near it is Qwen3MoeForCausalLM")):
        with open("hf/config.json", "w", encoding="utf-8") as file:
            json.dump({"architectures": [given]}, file)
        said = run("convert", "hf", "out.gguf", code=1).stderr
        expect(f"'{given}' is none of the " in said and near in said, f"{given}: {said!r}")
        expect(said.endswith("; 'quern convert --help' lists them all\n"), f"{given}: {said!r}")
    expect("LlamaForCausalLM" in shown and "Qwen3MoeForCausalLM" in shown, "convert --help lists the classes")


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    for test in (every_answer_follows_the_grammar, penalties_count_the_conversation_once, today_is_not_1970, gpu_layers_take_no_software_device,
                 every_reverse_prompt_stops, repeated_options_are_said, unknown_architectures_are_told_what_is_near):
        test()
    os.chdir("/")
print("chat:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
