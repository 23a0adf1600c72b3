#!/usr/bin/env python3
"""What README.md and docs/ say, held against what is there: commands run, rows of tables stand in the tables, files and folders exist.
Usage: check_docs.py QUERN

Numbers that make a command long are made small; what a command needs and is not here is said, and that command passed over."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
os.chdir(ROOT)
PAGES = ["README.md"] + sorted("docs/" + name for name in os.listdir("docs") if name.endswith(".md"))
WRITTEN = [page for page in PAGES if page not in ("docs/ops.md", "docs/families.md")]  # the others are generated, and compared as such
GRAPH = """quern graph 1
symbol batch 1..64
symbol seq 8..512 by 8
input %x f32[batch, seq, 8]
param %w1 f32[8, 8] "w1"
param %w2 f32[8, 8] "w2"
%3 = reshape %x {shape=(batch*seq, 8)}
%4 = mul_mat %w1 %3
%5 = unary.silu %4
%6 = mul_mat %w2 %5
%7 = sum %6
output %7 "loss"
"""
SMALLER = {"-n 200": "-n 8", "-p 512 -n 128 -d 0,4096": "-p 16 -n 4 -d 0,32", "-c 4096 -np 8": "-c 128 -np 2",
           "quern chat": "quern chat --chat-template '{{ messages[0].content }}'"}  # our model has none of its own
faults = []


def fault(what):
    faults.append(what)
    print("FAULT:", what[:600])


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def folded(text):
    return re.sub(r"\s+", "", text)


def blocks(page):
    """Indented lines of a page, block by block."""
    block = []
    for line in text_of(page).split("\n") + [""]:
        if line.startswith("    "):
            block.append(line[4:])
        elif block and line == "":
            yield block
            block = []


# ---- Commands

def commands():
    for page in WRITTEN:
        for block in blocks(page):
            for line in block:
                if re.match(r"quern (?!graph 1\b)", line):
                    yield page, re.split(r"\s{3,}|\s{2,}(?=raw|perplexity)", line)[0]


def run_commands(folder):
    graph, text, model = (os.path.join(folder, name) for name in ("FILE.qir", "text.txt", "model.gguf"))
    for path, content in ((graph, GRAPH), (text, "Once upon a time there was a fox. " * 60)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
    shutil.copy("models/stories.gguf", model)
    count = 0
    for page, line in commands():
        shown = line
        if "encoder.gguf" in line:
            print(f"passed over, there is no encoder here: {shown}")
            continue
        if "| dot" in line and not shutil.which("dot"):
            line = line.split("|")[0]
        for long, short in SMALLER.items():
            line = line.replace(long, short)
        line = re.sub(r"^quern", shlex.quote(QUERN), line)
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], cwd=folder, input="", capture_output=True, text=True,
                              errors="replace", timeout=300)
        if done.returncode != 0:
            fault(f"{page}: {shown}: exit code {done.returncode}: {done.stderr}")
        count += 1
    return count


def check_verbs():
    known = set(re.findall(r"^  (\w+)", subprocess.run([QUERN, "--help"], capture_output=True, text=True).stdout, re.M))
    for page in WRITTEN:
        for verb in re.findall(r"`quern ([a-z]+)", text_of(page)):
            if verb not in known:
                fault(f"{page}: there is no `quern {verb}`")


# ---- Rows, files, folders

def check_rows():
    tables = ""
    for folder in ("include", "src", "tests", "apps"):
        for path, _, names in os.walk(folder):
            tables += "".join(folded(text_of(os.path.join(path, name))) for name in names if name.endswith(".def"))
    count = 0
    for page in WRITTEN:
        for block in blocks(page):
            for row in re.findall(r"QN_[A-Z_]+\(.*?\)$", "\n".join(block), re.M | re.S):
                count += 1
                if folded(row) not in tables:
                    fault(f"{page}: no table has the row {row}")
    return count


def check_passes():
    rows = re.findall(r"^QN_PASS\((\w+)", text_of("src/pass/passes.def"), re.M)
    shown = re.findall(r"^\| (\w+) \|", text_of("docs/passes.md"), re.M)[1:]
    if rows != shown:
        fault(f"docs/passes.md lists {shown}, passes.def has {rows}")


def check_files():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True)
    if listed.returncode != 0:
        print("passed over: no git, so no list of files")
        return
    files = listed.stdout.split()
    names = {os.path.basename(path) for path in files} | set(files)
    for page in WRITTEN:
        for name in re.findall(r"`([\w./-]+\.(?:c|h|def|py|md|sh|qir|comp|glsl))`", text_of(page)):
            if name not in names and not any(path.endswith("/" + name) for path in files):
                fault(f"{page}: there is no file {name}")
        for link in re.findall(r"\]\(([^)#]+)\)", text_of(page)):
            if "://" not in link and not os.path.exists(os.path.join(os.path.dirname(page), link)):
                fault(f"{page}: the link {link} leads nowhere")
    layout = text_of("README.md").split("## How it is laid out")[1]
    folders = {path.split("/")[0] + "/" for path in files if "/" in path}
    folders |= {"/".join(path.split("/")[:2]) + "/" for path in files if path.startswith("src/") and path.count("/") > 1}
    for folder in sorted(f for f in folders - {"src/"} if not f.startswith(".")):
        if folder not in layout:
            fault(f"README.md: its layout does not name {folder}")


def check_graph(folder):
    """The graph of docs/qir.md is one."""
    path = os.path.join(folder, "shown.qir")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(next(b for b in blocks("docs/qir.md") if b[0].startswith("quern graph 1"))) + "\n")
    done = subprocess.run([QUERN, "graph", path, "--verify"], capture_output=True, text=True)
    if done.returncode != 0:
        fault(f"docs/qir.md: its graph: {done.stderr}{done.stdout}")


with tempfile.TemporaryDirectory() as work:
    n_commands = run_commands(work)
    check_graph(work)
check_verbs()
n_rows = check_rows()
check_passes()
check_files()
if n_commands < 19 or n_rows < 4:
    fault(f"only {n_commands} commands and {n_rows} rows were found")
print(f"{n_commands} commands and {n_rows} rows; {len(faults)} faults")
sys.exit(1 if faults else 0)
