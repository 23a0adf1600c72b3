#!/usr/bin/env python3
"""What the pages say, held against what is there: commands run, rows of tables stand in the tables, figures in the CSV, variables in
the code, files and folders exist. Usage: check_docs.py QUERN [--deep]

Numbers that make a command long are made small. A command that takes long even so, or needs a GPU or data, runs with --deep alone;
one that another suite runs, or nobody does, stands in ELSEWHERE with the reason. README.md's own commands: check_readme.py."""
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
BUILD = os.path.dirname(QUERN)
DEEP = "--deep" in sys.argv[2:]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
os.chdir(ROOT)
MNIST = os.path.abspath("../shared/data/mnist")
GENERATED = ("docs/ops.md", "docs/families.md", "docs/errors.md")  # compared as such
OTHERS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md", "models/README.md"]
WRITTEN = OTHERS + sorted(path for path in ("docs/" + name for name in os.listdir("docs")) if path.endswith(".md") and path not in GENERATED)
PROGRAM = r"(?:[A-Z_]+=\S* )*(?:quern|make|cmake|ctest|ninja|python3|pip|unzip|\.ci/run|(?:build|tests|tools|docs)/[\w./]+)(?= |$)"
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
SMALLER = {"-n 200": "-n 8", "-p 512 -n 128 -d 0,4096": "-p 16 -n 4 -d 0,32", "-p 512 -n 128": "-p 16 -n 4", "-c 4096": "-c 128 -np 2",
           "-np 2 -np 8": "-np 2", "quern chat": "quern chat --chat-template '{{ messages[0].content }}'",  # our model has none of its own
           "--steps 40": "--steps 1", "--steps 12": "--steps 2", "--data mnist --epochs 2": f"--data {MNIST} --images 640 --epochs 1",
           "--data mnist --images 600": f"--data {MNIST} --images 64", "bench ops -t 1,2": "bench ops --op fill --ms 1 -t 1,2",
           "bench ops --op mul_mat --dtype q4_0 -t 2": "bench ops --op mul_mat --dtype q4_0 --shape n=1 --ms 1 -t 2",
           "bench ops --op add": "bench ops --op add --ms 1", "bench limits": "bench limits 20", "--op NAME": "--op add"}
LONG = {r"--device vulkan": "vulkan", r"train --example mnist": "mnist", r"vk_bench .*--no-speed": "vulkan", r"qn_check \w+ --op": "",
        r"plan --example gpt2": "", r"bench (ops|limits)": "", r"train --example stories": "", r"tales\.gguf": "", r"QUERN_CPU=": ""}  # and what it needs
ELSEWHERE = {r"make$|make (demo|test$)": "check_readme.py --net --make, and the lanes themselves", r"make (install|uninstall|deb)": "the lane of packages",
             r"make (test-all|test LANES|format)|\.ci/run": "the lanes themselves", r"tests/run\.py|ctest|ninja|cmake": "the lanes configure, build and run so",
             r"quern embed": "there is no encoder here: the suite of architectures", r"quern profile serve": "the suite of the page",
             r"python3 bench/peers\.py|pip |unzip |build/quern chat": "check_readme.py --net", r"build/tests/vk_bench --size": "by hand: minutes on a GPU",
             r"build/quern (train|quantize)|build/quern run -m models": "by hand: it trained models/stories.gguf for minutes"}
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
    """Indented lines of a page, and those of its ```sh blocks, block by block."""
    block, fenced = [], False
    for line in text_of(page).split("\n") + [""]:
        if line.startswith("```"):
            fenced = line == "```sh"
        if fenced and not line.startswith("```"):
            block.append(line)
        elif line.startswith("    "):
            block.append(line[4:])
        elif block:
            yield block
            block = []


# ---- Commands

def commands():
    for page in WRITTEN:
        for block in blocks(page):
            for line in block:
                if re.match(PROGRAM, line) and not re.match(r"quern graph 1\b", line):
                    yield page, re.split(r"\s{3,}|\s+#\s|\s{2,}(?=raw|perplexity)", line)[0]


def lacks(need):
    if need == "vulkan" and not re.search(r"^vulkan:0", subprocess.run([QUERN, "devices"], capture_output=True, text=True).stdout, re.M):
        return "there is no Vulkan device here"
    return f"there is no {MNIST}" if need == "mnist" and not os.path.isdir(MNIST) else None


def runs(line):
    """Whether a command runs now, or why not; each pattern must have a command, so that none goes stale."""
    for pattern, where in ELSEWHERE.items():
        if re.match(pattern, re.sub(r"^(\w+=\S* )+", "", line)):
            used.add(pattern)
            return where
    for pattern, need in LONG.items():
        if re.search(pattern, line):
            used.add(pattern)
            return lacks(need) if DEEP else "--deep"
    return None


used = set()


def make_ready(folder):
    for name, content in (("FILE.qir", GRAPH), ("text.txt", "Once upon a time there was a fox. " * 60)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    shutil.copy("models/stories.gguf", os.path.join(folder, "model.gguf"))


def run_commands(folder):
    count = 0
    make_ready(folder)
    for page, line in commands():
        shown, passed = line, runs(line)
        if passed:
            if passed != "--deep":
                print(f"passed over, {passed}: {shown}")
            continue
        if "| dot" in line and not shutil.which("dot"):
            line = line.split("|")[0]
        for long, short in SMALLER.items():
            line = line.replace(long, short)
        line = re.sub(r"(?<!\S)quern(?= )", shlex.quote(QUERN), re.sub(r"(?<!\S)build/", shlex.quote(BUILD) + "/", line), count=1)
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], cwd=folder, input="", capture_output=True, text=True,
                              errors="replace", timeout=300)
        if done.returncode != 0:
            fault(f"{page}: {shown}: exit code {done.returncode}: {done.stderr}")
        count += 1
    for pattern in [*ELSEWHERE, *LONG]:
        if pattern not in used:
            fault(f"check_docs.py: no page has a command as '{pattern}' any more")
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
        for name in re.findall(r"`([\w./-]+\.(?:c|h|def|py|md|sh|qir|comp|glsl|csv))`", text_of(page)):
            if name not in names and not any(path.endswith("/" + name) for path in files):
                fault(f"{page}: there is no file {name}")
    for page in WRITTEN + list(GENERATED):
        for link in re.findall(r"\]\(([^)#]+)\)", text_of(page)):
            if "://" not in link and not os.path.exists(os.path.join(os.path.dirname(page), link)):
                fault(f"{page}: the link {link} leads nowhere")
    layout = text_of("CONTRIBUTING.md").split("## How it is laid out")[1]
    folders = {path.split("/")[0] + "/" for path in files if "/" in path}
    folders |= {"/".join(path.split("/")[:2]) + "/" for path in files if path.startswith("src/") and path.count("/") > 1}
    for folder in sorted(f for f in folders - {"src/"} if not f.startswith(".")):
        if folder not in layout:
            fault(f"CONTRIBUTING.md: its layout does not name {folder}")
    for page in (f for f in files if f.startswith("docs/") and f.endswith(".md") and f.count("/") == 1):
        if f"({os.path.basename(page)})" not in text_of("docs/README.md") and page != "docs/README.md":
            fault(f"docs/README.md: its list does not name {page}")


def check_pictures():
    """Each is shown by a page, and small enough for one."""
    shown = {os.path.normpath(os.path.join(os.path.dirname(page), link)): page for page in WRITTEN
             for link in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text_of(page))}
    there = {"docs/pictures/" + name for name in os.listdir("docs/pictures") if name.endswith(".png")}
    for path in sorted(set(shown) ^ there):
        fault(f"{path}: " + ("no page shows it" if path in there else "it is shown and not there"))
    sizes = {path: os.path.getsize(path) for path in there}
    if sum(sizes.values()) > 600_000 or max(sizes.values()) > 200_000:
        fault(f"docs/pictures: {sum(sizes.values())} bytes, {max(sizes.values())} in one; 600000 and 200000 are allowed")


# ---- Figures and lists

def check_readme_size():
    text = text_of("README.md")
    lines, words, open_figures = text.count("\n"), len(text.split()), text.count("@@")
    if lines > 130 or words > 900:
        fault(f"README.md: {lines} lines and {words} words, 130 and 900 are allowed")
    if open_figures and DEEP:
        fault(f"README.md: {open_figures} figures are still to be measured (@@)")


def check_counts():
    """How many ops, kernels on Vulkan and architectures there are."""
    ops = json.loads(subprocess.run([QUERN, "ops", "--json"], capture_output=True, text=True).stdout)
    there = (str(sum(op["backends"]["vulkan"] for op in ops)), str(len(ops)))
    archs = str(len(re.findall(r"^QN_ARCH\(", text_of("src/model/archs.def"), re.M)))
    built = "without Vulkan" if there[0] == "0" else ""
    for page in WRITTEN:
        for count in re.findall(r"(\d+) of (?:the )?(\d+) ops", text_of(page)):
            if count != there and not built:
                fault(f"{page}: {' of '.join(count)} ops; there are {' of '.join(there)}")
        for count in re.findall(r"GGUF files of (\d+) architectures", text_of(page)):
            if count != archs:
                fault(f"{page}: {count} architectures; archs.def has {archs}")
        for count in re.findall(r"(?:lists the|\*\*Ops\.\*\*) (\d+)", text_of(page)):
            if count != there[1]:
                fault(f"{page}: {count} ops; there are {there[1]}")


def check_results():
    """Every figure in the tables of bench/README.md stands in the CSV, whose rows it counts."""
    with open("bench/results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    page, known = text_of("bench/README.md"), set()
    for row in rows:
        for field in ("ns", "quern", "peer_value", "times", "note"):
            known |= {float(number) for number in re.findall(r"\d+(?:\.\d+)?", row[field] or "")}
        if any(row[field] and not re.fullmatch(r"\d+(\.\d+)?", row[field]) for field in ("threads", "ns", "quern", "peer_value", "times")):
            fault(f"bench/results.csv: a figure that is none: {row}")
        if row["machine"] not in re.findall(r"^\| (\w+) \|", page, re.M):
            fault(f"bench/results.csv: bench/README.md does not say what {row['machine']} is")
    if f"{len(rows):,} of them" not in page:
        fault(f"bench/README.md does not say that bench/results.csv has {len(rows):,} rows")
    tables = page.split("## Language models")[1]
    for line in re.findall(r"^\| .*$", tables, re.M):
        for cell in [cell.strip() for cell in line.strip("|").split("|")][1:]:
            for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", cell if re.match(r"\d", cell) else ""):
                if float(number) not in known:
                    fault(f"bench/README.md: {number} in '{line[:80]}' is in no row of bench/results.csv")


def check_environment():
    """Every variable that code reads has a row, and every row a variable."""
    read = set()
    for folder in ("src", "apps", "include", "tests", "fuzz", "bench"):
        for path, _, names in os.walk(folder):
            for name in names:
                if name.endswith((".c", ".h")):
                    read |= set(re.findall(r'\b(?:secure_)?getenv\("(\w+)"\)', text_of(os.path.join(path, name))))
                elif name.endswith(".py"):
                    read |= set(re.findall(r'os\.environ\.get\("(QUERN_\w+)"', text_of(os.path.join(path, name))))
    read |= set(re.findall(r"\$\{(CHROMIUM):-", text_of("tests/web/run.sh")))
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", text_of("docs/environment.md"), re.M))
    for name in sorted(read ^ listed):
        fault(f"docs/environment.md: {name} " + ("is read and has no row" if name in read else "has a row, and nothing reads it"))


def check_errors():
    made = subprocess.run([sys.executable, "tools/errors_page.py"], capture_output=True, text=True)
    if made.returncode != 0 or made.stdout != text_of("docs/errors.md"):
        fault("docs/errors.md is stale: tools/errors_page.py >docs/errors.md" + made.stderr)


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
for check in (check_verbs, check_passes, check_files, check_pictures, check_readme_size, check_counts, check_results, check_environment,
              check_errors):
    check()
n_rows = check_rows()
if n_commands < (40 if DEEP else 25) or n_rows < 4:
    fault(f"only {n_commands} commands and {n_rows} rows were found")
print(f"{n_commands} commands and {n_rows} rows; {len(faults)} faults")
sys.exit(1 if faults else 0)
