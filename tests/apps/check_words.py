#!/usr/bin/env python3
"""What the quern command says about words that it cannot mean, and about what it did otherwise than asked. Usage: check_words.py QUERN

Needs nothing but Python and models/stories.gguf."""
import json
import os
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
STORIES = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "stories.gguf"))
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
faults = []

# What is called wrongly, and a part of the one line that says so: nothing is done before.
WRONG = (
    ("run M -p hi -f g.qir", "'-p' and '-f' do not go together"), ("eval M -p hi -f g.qir", "'-f' and '-p' do not go"),
    ("eval M --ids 1 -f g.qir", "'--ids' and '-f' do not go"), ("eval M --logits x -f g.qir", "'--logits' and '-f' do not go"),
    ("eval M --ids 1 --chunks 1", "'--ids' and '--chunks' do not go"), ("tokenize M --ids --count", "'--ids' and '--count' do not"),
    ("tokenize M -p a -f g.qir", "'-p' and '-f' do not go"), ("embed M -p a -f g.qir", "'-p' and '-f' do not go"),
    ("train --example stories --tell 1 -o x.gguf", "'--tell' and '-o' do not go"),
    ("train --example stories --tell 1 --steps 1", "'--tell' and '--steps' do not go"),
    ("plan --example mnist --example gpt2", "'mnist' and 'gpt2' do not go"), ("plan --example mnist --strict", "--device names it"),
    ("plan --example mnist --json --values", "leave out --values"),
    ("profile overview t --op x", "'overview' and '--op' do not go"), ("profile overview t --against t", "'--against' do not go"),
    ("profile memory_curve t --start 1", "'--start' do not go"), ("profile all t -o f --path 0", "'--path' do not go"),
    ("profile overview t --json --csv", "'--json' and '--csv' do not go"), ("profile trace_view t --csv", "'--csv' do not go"),
    ("profile overview t --json --top 1", "'--json' and '--top' do not go"), ("profile memory t --start nan", "a number, not 'nan'"),
    ("profile memory t --time foo", "us, ms or s, not 'foo'"), ("profile memory_events t --memory foo", "GB, not 'foo'"),
    ("profile memory t --start 5 --end 1", "--start lies behind --end"), ("profile html t -o EMPTY", "the file to write is empty"),
    ("run EMPTY -p x", "the name of the model is empty"), ("run M -p x --prompt-cache EMPTY", "the name of the prompt cache is empty"),
    ("quantize M EMPTY Q4_0", "the name of the file to write is empty"), ("inspect EMPTY", "the name of the file is empty"),
    ("quantize M q.gguf Q4_0 --tensor-type [=Q8_0", "'[' is no regular expression"),
    ("quantize M q.gguf Q4_0 --tensor-type (unclosed=Q8_0", "'(unclosed' is no regular expression"),
    ("train --example mnist --images 1", "--images takes a number from 64 to 60000, not '1'"),
    ("train --example mnist --epochs 0", "--epochs takes a number from 1 to 1000, not '0'"),
    ("train --example mnist --seed x", "--seed takes a number from 0 to"), ("train --example nosuch", "no example 'nosuch'; there are mnist"),
    ("plan --example mnist --cap 1e9", "--cap takes a number from 1 to"), ("plan --example mnist --cap -1", "not '-1'"),
    ("plan --example nosuch", "no example 'nosuch'; there are mnist, gpt2"), ("plan --example mnist --foo", "no option '--foo'"),
    ("plan --example", "'--example' needs something behind it"), ("devices x", "what is 'x' for"),
    ("ops relu", "it is a sub-op of 'unary'"), ("ops GEGLU", "it is a sub-op of 'glu'"), ("ops SOFT_MAX", "did you mean 'soft_max'?"),
)


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what[:600])


def run(*words, code=0, text=""):
    done = subprocess.run([QUERN, *words], input=text, capture_output=True, text=True, errors="replace", timeout=300)
    expect(done.returncode == code, f"{words}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


def wrong_words():
    for line, says in WRONG:
        words = [{"M": STORIES, "EMPTY": ""}.get(word, word) for word in line.split()]
        done = run(*words, code=2)
        expect(says in done.stderr and done.stderr.startswith(f"quern {words[0]}: ") and done.stderr.count("\n") == 1, f"{line}: {done.stderr!r}")
        expect(not done.stdout, f"{line}: printed {done.stdout[:80]!r}")
    expect(sorted(os.listdir(".")) == ["g.qir", "t"], f"left: {os.listdir('.')}")
    for verb in ("plan", "graph"):
        expect(run(verb, "g.qir", code=1).stderr.startswith(f"quern {verb}: g.qir:1:1: "), f"{verb}: whose sentence it is")


def quantized():
    done = run("quantize", STORIES, "q.gguf", "IQ2_XXS")
    expect("29 tensors could not get the type" in done.stderr and "rows of 128" in done.stderr, f"IQ2_XXS: {done.stderr!r}")
    done = run("quantize", STORIES, "q.gguf", "Q8_0", "--tensor-type", "attn_q=F16,nosuch=Q8_0,attn_norm=Q8_0")
    expect("'nosuch' matches no" in done.stderr and "'attn_norm' matches no" in done.stderr and "attn_q" not in done.stderr, done.stderr)
    expect("could not get" not in done.stderr, done.stderr)
    done = run("inspect", STORIES, "--tensors=blk.0.*norm*")
    expect("all           2 tensors" in done.stdout and "2 of 38 tensors, 1024 of" in done.stdout, f"inspect --tensors=: {done.stdout}")
    told = json.loads(run("inspect", STORIES, "--tensors=blk.0.*norm*", "--json").stdout)
    expect(told["totals"] == {"f32": {"tensors": 2, "elements": 256, "bytes": 1024}}, f"totals: {told['totals']}")
    expect(told["listed"]["of_tensors"] == 38 and told["listed"]["tensors"] == 2, f"listed: {told['listed']}")


def speeds():
    def said(*words):
        return run("run", STORIES, "-t", "1", "--temp", "0", *words).stderr

    expect(", then 1; as many" in said("-p", "Once upon", "-n", "1"), "run -n 1 tells no rate")
    expect(", then 0; as many" in said("-p", "Once upon", "-n", "0"), "run -n 0 tells no rate")
    expect("prompt 1 token in" in said("-n", "3") and "1 thread\n" in said("-n", "3"), "one is one")
    for wanted in ("prompt 3 tokens in", "prompt 1 token in"):
        expect(wanted in said("-p", "Once upon", "-n", "3", "--prompt-cache", "cache"), f"--prompt-cache: {wanted}")
    done = run("eval", STORIES, "-p", "Once upon a time", "-c", "3", "--chunks", "1")
    expect("over 1 token in 1 window of 3" in done.stdout, f"eval: {done.stdout!r}")


def full_contexts():
    """A conversation that fills its context goes on, and so does one with a line that never fits."""
    words = ("chat", STORIES, "-c", "64", "--seed", "1", "-n", "40", "--chat-template", TEMPLATE)
    done = run(*words, text="Once upon a time there was a fox.\nhello\nmore\n/clear\nOne day a dog.\n")
    expect("context of 64 tokens is full" in done.stderr and "line is left out; /clear begins anew, -c" in done.stderr, done.stderr)
    expect(len(done.stdout.split("\n")) >= 4 and len(done.stdout.rstrip().split("\n")[-1]) > 40, f"after /clear: {done.stdout!r}")
    alone = run(*words, text="Once upon\n").stdout
    done = run(*words, text="a" * 3000 + "\nOnce upon\n")
    expect("this line makes" in done.stderr and done.stdout == alone, f"a line too long: {done.stderr!r} {done.stdout!r}, not {alone!r}")


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    for name in ("g.qir", "t"):
        with open(name, "w", encoding="utf-8") as file:
            file.write("Once upon a time\n")
    wrong_words()
    quantized()
    speeds()
    full_contexts()
    os.chdir("/")
print("words:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
