#!/usr/bin/env python3
"""quern chat and quern run on models/stories.gguf: every answer of a conversation, and what ends one. Usage: check_chat.py QUERN

Needs nothing but Python and models/stories.gguf."""
import datetime
import json
import os
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
    devices = json.loads(run("devices", "--json").stdout)
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


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    for test in (every_answer_follows_the_grammar, penalties_count_the_conversation_once, today_is_not_1970, gpu_layers_take_no_software_device):
        test()
    os.chdir("/")
print("chat:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
