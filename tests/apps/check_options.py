#!/usr/bin/env python3
"""The options of every verb: what is accepted is what --help, the man page and bash's completion show, and nothing else.
Usage: check_options.py QUERN

Needs nothing but Python; what needs bash or man is passed over, with a sentence, where they are not here."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

QUERN = os.path.abspath(sys.argv[1])
NONE = "--no-such-option"
faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what[:600])


def run(*words, code=0, **more):
    done = subprocess.run([QUERN, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60, **more)
    expect(done.returncode == code, f"{words}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


def all_verbs():
    """"run", "bench ops" and so on, each as its words."""
    verbs = [(name,) for name in re.findall(r"^  (\w+) ", run("help").stdout, re.M)]
    subs = [tuple(sub.split()) for verb in verbs for sub in re.findall(rf"^  ({verb[0]} \w+) ", run("help", *verb).stdout, re.M)]
    expect(len(verbs) > 15 and ("bench", "ops") in subs and ("profile", "html") in subs, f"verbs: {verbs} {subs}")
    return verbs + subs


def in_help(verb):
    """Names of the options in the help of a verb."""
    rows = re.findall(r"^  (-.*?)(?:  |$)", run(*verb, "--help").stdout, re.M)
    return {name for row in rows for name in re.findall(r"(?:^|, )(-[\w-]+)", row)}


def in_program():
    """Whatever in the program looks like the names of an option."""
    with open(QUERN, "rb") as file:
        texts = re.findall(rb"\0(--?[a-z][\w, -]{0,60})\0", file.read())
    names = {name for text in texts for name in text.decode().replace("_", "-").split(", ")}
    return {name for name in names if re.fullmatch(r"--?[a-z][a-z0-9-]*", name)}


def accepts(verb, name):
    """Nothing is done: an option that is none follows, twice, as the first may be taken for an argument."""
    done = subprocess.run([QUERN, *verb, name, NONE, NONE], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    wrong = re.search(r"there is no option '(.*?)'", done.stderr)
    expect(done.returncode == 2 and wrong and not done.stdout, f"{verb} {name}: {done.returncode} {done.stderr} {done.stdout[:80]}")
    return bool(wrong) and wrong.group(1) != name


# ---- The man page, as sections

def man_sections(page):
    """Names of the options in each verb's section, with those of groups that another verb tells."""
    plain = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-")
    own, groups, of_group = {}, {}, {}
    for section in re.split(r"^\.SS quern ", plain.split(".SH VERBS\n")[1].split(".SH EXIT")[0], flags=re.M)[1:]:
        verb, rest = tuple(section.split("\n", 1)[0].split()), section.split("\n", 1)[1]
        own[verb], groups[verb] = set(), []
        title = None
        for line in re.findall(r"^(?:\.TP\n(-.*)|\.PP\n([A-Z][^.\n]*?)(?:: as for quern (.*))?)$", rest, re.M):
            if line[0]:
                names = set(re.findall(r"(?:^|, )(-[\w-]+)", line[0]))
                own[verb] |= names
                of_group.setdefault((verb, title), set()).update(names)
            elif line[2]:
                groups[verb].append((tuple(line[2].split()), line[1]))
            else:
                title = line[1]
    return {verb: own[verb].union(*(of_group.get(group, set()) for group in groups[verb])) for verb in own}


def man():
    page = run("help", "--man").stdout
    sections = man_sections(page)
    if not shutil.which("man") or not shutil.which("groff"):
        print("passed over: man or groff is not here")
        return sections
    with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
        file.write(page)
        file.flush()
        done = subprocess.run(["man", "--warnings", "-l", file.name], capture_output=True, text=True,
                              env=dict(os.environ, MANWIDTH="100", LC_ALL="C.UTF-8", MAN_KEEP_FORMATTING="0"))
    expect(done.returncode == 0 and not done.stderr, f"man: {done.stderr}")
    shown = re.sub(".\b", "", done.stdout)  # what is bold is printed twice
    for text in ("--ignore-eos", "'quern chat' is the conversation", "\\n, \\t, \\\\ in the prompt", "EXIT STATUS"):
        expect(text in shown, f"man does not show {text}")
    return sections


# ---- Completion

def complete(folder, *words):
    """What bash offers for the last word, as a set; the first words are those before it."""
    script = ('source <("$0" help --bash-completion); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "$(complete -p quern | sed "s/.*-F \\([^ ]*\\) .*/\\1/")"; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, QUERN, "quern", *words], cwd=folder, capture_output=True, text=True)
    expect(done.returncode == 0 and not done.stderr, f"completion of {words}: {done.returncode} {done.stderr}")
    return {line for line in done.stdout.split("\n") if line}


def completion(folder, helps):
    if not shutil.which("bash"):
        print("passed over: bash is not here")
        return
    for name in ("a.gguf", "two words.gguf", "b.qir", "c.txt"):
        with open(os.path.join(folder, name), "w", encoding="utf-8"):
            pass
    os.mkdir(os.path.join(folder, "sub"))
    for verb, names in helps.items():
        expect(complete(folder, *verb, "-") == names | {"--help"}, f"completion of quern {' '.join(verb)} -: {complete(folder, *verb, '-') ^ names}")
    models, everything = {"a.gguf", "two words.gguf", "sub"}, {"a.gguf", "two words.gguf", "b.qir", "c.txt", "sub"}
    for words, wanted in ((("ru",), {"run"}), (("--v",), {"--version"}), (("run", "-m", ""), models), (("run", ""), models),
                          (("run", "-t", "4", ""), models), (("run", "a.gguf", ""), set()), (("run", "-p", ""), set()),
                          (("chat", "--ignore", "--ctx"), {"--ctx-size"}), (("graph", ""), {"b.qir", "sub"}),
                          (("graph", "b.qir", "--precision", ""), {"f16", "bf16"}), (("run", "--profile", "=", ""), {"sub"}),
                          (("run", "--profile", "=", "s"), {"sub"}), (("inspect", "--all", ""), everything), (("bench", "pl"), {"plan"}),
                          (("bench", "ops", "-o", ""), {"md", "csv", "json"}), (("bench", "ops", "--ms", ""), set()),
                          (("quantize", "a.gguf", "b.gguf", "Q4_K"), {"Q4_K_S", "Q4_K_M"}), (("train", "--example", "s"), {"stories"}),
                          (("help", "pro"), {"profile"}), (("help", "profile", ""), {"html", "serve"}), (("help", "--m"), {"--man"}),
                          (("profile", "ov"), {"overview"}), (("profile", "overview", "c"), {"c.txt"}), (("profile", "html", "-o", ""), {"sub"}),
                          (("ops", "soft_max_b"), {"soft_max_back"})):
        got = complete(folder, *words)
        expect(got == wanted, f"completion of {words}: {got}, not {wanted}")


# ---- All of it

def the_same(verbs):
    helps = {verb: in_help(verb) for verb in verbs}
    sections = man()
    expect(set(sections) == set(verbs), f"sections of the man page: {set(sections) ^ set(verbs)}")
    names = in_program() | set().union(*helps.values()) | {"-h", "--help"}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for verb in verbs:
            taken = {name for name, yes in zip(names, pool.map(lambda name: name in ("-h", "--help") or accepts(verb, name), names)) if yes}
            taken -= {"-h", "--help"}
            expect(taken == helps[verb], f"quern {' '.join(verb)} accepts and does not show, or the other way round: {taken ^ helps[verb]}")
            expect(sections.get(verb) == helps[verb], f"man page of {verb}: {sections.get(verb, set()) ^ helps[verb]}")
    print(f"{sum(map(len, helps.values()))} options of {len(verbs)} verbs; {len(names)} names tried with each")
    return helps


def words():
    """Help wherever it is asked for, and the nearest name where one is wrong."""
    for verb in (("run",), ("bench", "ops"), ("profile",)):
        told = run("help", *verb).stdout
        expect(told == run(*verb, "--help").stdout == run(*verb, NONE, "-h").stdout and told.startswith("usage: quern "), f"help {verb}")
    expect(run("help").stdout == run("--help").stdout == run("-h").stdout, "quern help is quern --help")
    for line, says in ((("help", "nosuchthing"), "there is no verb 'nosuchthing'; 'quern help' lists them"), (("rnu",), "did you mean 'run'?"),
                       (("help", "chatt"), "did you mean 'chat'?"), (("help", "bench", "opss"), "did you mean 'ops'?"),
                       (("bench", "limit"), "did you mean 'limits'?"), (("run", "--promt", "x"), "did you mean '--prompt'?"),
                       (("chat", "--top-kk", "1"), "did you mean '--top-k'?"), (("run", "--zzzzzz"), "'--zzzzzz'; 'quern run --help' says more"),
                       (("run", "-p", "--help"), "which model?"), (("run", "-p"), "'-p' needs something behind it"),
                       (("devices", "--json=1"), "'--json' takes no value"), (("run", "a.gguf", "b.gguf"), "what is 'b.gguf' for"),
                       (("help", "run", "--man"), "do not go together"), (("train", "--example", "mnist", "--steps", "3"), "do not go together"),
                       (("train", "--example", "stories", "--epochs", "3"), "do not go together")):
        said = run(*line, code=2)
        expect(says in said.stderr and said.stderr.count("\n") == 1 and not said.stdout, f"{line}: {said.stderr!r}")
    expect("--nothing:" in run("inspect", "--", "--nothing", code=1).stderr, "behind -- no word is an option")
    expect("'top_k'" not in run("run", "--top_k", "1", code=2).stderr, "an underscore is a dash, as for llama.cpp")


with tempfile.TemporaryDirectory() as place:
    completion(place, the_same(all_verbs()))
words()
print("options:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
