#!/usr/bin/env python3
"""quern inspect, quantize and convert as a user calls them: what they print, write and return. Usage: check_cli.py QUERN

Needs nothing but Python: models are made here, byte by byte, and XXH64 is computed a second time.
"""
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time

QUERN = os.path.abspath(sys.argv[1])
MASK = (1 << 64) - 1
faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what)


def run(*args, code=0, **more):
    done = subprocess.run([QUERN, *args], capture_output=True, text=True, timeout=300, **more)
    expect(done.returncode == code, f"{args}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


# ---- A second XXH64

P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotl(v, n):
    return (v << n | v >> (64 - n)) & MASK


def round64(lane, v):
    return rotl((lane + v * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    at, n = 0, len(data)
    if n >= 32:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while at + 32 <= n:
            lanes = [round64(lane, v) for lane, v in zip(lanes, struct.unpack_from("<4Q", data, at))]
            at += 32
        h = sum(rotl(lane, k) for lane, k in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            h = ((h ^ round64(0, lane)) * P1 + P4) & MASK
    else:
        h = P5
    h = (h + n) & MASK
    while at + 8 <= n:
        h = (rotl(h ^ round64(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= n:
        h = (rotl(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotl(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return f"{h ^ h >> 32:016x}"


# ---- Models

def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def gguf(path, keys, tensors):
    """keys: (name, type, bytes); tensors: (name, row-major shape, type number, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(name) + struct.pack("<I", kind) + value for name, kind, value in keys)
    data = b""
    for name, shape, kind, value in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += value + b"\0" * (-len(value) % 32)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


def u32(v):
    return struct.pack("<I", v)


def floats(count, seed):
    draw = random.Random(seed)
    return struct.pack(f"<{count}f", *(draw.gauss(0, 0.05) for _ in range(count)))


LAYERS = 8


def llama_tensors(dim):
    yield "token_embd.weight", (64, dim)
    yield "output.weight", (64, dim)
    yield "output_norm.weight", (dim,)
    for i in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            yield f"blk.{i}.{part}.weight", (4, dim)
        yield f"blk.{i}.attn_norm.weight", (dim,)


def count_of(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def llama_model(path, dim=256):
    keys = [("general.architecture", 8, text("llama")), ("llama.block_count", 4, u32(LAYERS)), ("general.file_type", 4, u32(0)),
            ("llama.attention.head_count", 4, u32(8)), ("llama.attention.head_count_kv", 4, u32(8)),
            ("bad.text", 8, text("a\033[2J\nb")), ("list", 9, struct.pack("<IQ3h", 3, 3, 1, -2, 3))]
    tensors = [(name, shape, 0, floats(count_of(shape), name)) for name, shape in llama_tensors(dim)]
    gguf(path, keys, tensors)
    return {name: (shape, value) for name, shape, _, value in tensors}


def look(path, *args):
    return json.loads(run("inspect", "--json", *args, path).stdout)


def types_of(path):
    return {t["name"]: t["type"] for t in look(path)["tensors"]}


# ---- Tests

def inspect(folder):
    path = os.path.join(folder, "m.gguf")
    made = llama_model(path)
    out = look(path, "--hash")
    expect(out["format"] == "gguf" and out["version"] == 3 and out["alignment"] == 32, "inspect: the head")
    expect(out["keys"]["llama.block_count"]["value"] == LAYERS and out["keys"]["list"]["value"] == [1, -2, 3], "inspect: keys")
    for t in out["tensors"]:
        shape, value = made[t["name"]]
        expect(tuple(t["shape"]) == shape and t["bytes"] == len(value) and t["xxh64"] == xxh64(value), f"inspect: {t['name']}")
    expect(out["xxh64"] == xxh64(b"".join(made[t["name"]][1] for t in out["tensors"])), "inspect: the hash of all")
    for n in (0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 100):
        gguf(path, [], [("t", (n,), 24, bytes(range(n)))])
        expect(look(path, "--hash")["tensors"][0]["xxh64"] == xxh64(bytes(range(n))), f"inspect: the hash of {n} bytes")
    llama_model(path)
    shown = run("inspect", path).stdout
    expect("\033" not in shown and "a\\x1b[2J\\nb" in shown and "i16[3]" in shown, "inspect: foreign text is not let through")
    expect("blk.0" not in run("inspect", "--keys", path).stdout, "inspect --keys")
    expect(run("inspect", "--tensors=blk.3.*", path).stdout.count("blk.3.") == 8, "inspect --tensors=GLOB")
    run("inspect", code=2)
    run("inspect", "--nothing", path, code=2)
    run("inspect", os.path.join(folder, "none.gguf"), code=1)
    expect("usage" in run("inspect", "--help").stdout, "inspect --help")
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 1)
    expect("cut short" in run("inspect", path, code=1).stderr, "inspect: a file that was cut short")


def quantize(folder):
    path, out = os.path.join(folder, "m.gguf"), os.path.join(folder, "q.gguf")
    made = llama_model(path)
    names = [line.split()[0] for line in run("quantize", "--help").stdout.split("types, most bits first:\n")[1].splitlines()]
    expect(len(names) > 30 and "Q4_K_M" in names, "quantize --help lists the types")
    for name in names:
        run("quantize", path, out, name)
        expect(types_of(out)["output_norm.weight"] == "f32", f"quantize {name}: norms stay")
    run("quantize", path, out, "F16")
    half = {t["name"]: t for t in look(out, "--hash")["tensors"]}
    shape, value = made["blk.1.ffn_up.weight"]
    exact = struct.pack(f"<{count_of(shape)}e", *struct.unpack(f"<{count_of(shape)}f", value))
    expect(half["blk.1.ffn_up.weight"]["xxh64"] == xxh64(exact), "quantize F16: the bytes")
    expect(look(out)["keys"]["general.file_type"]["value"] == 1, "quantize F16: general.file_type")
    run("quantize", path, out, "q4_k_m")
    types = types_of(out)
    more = {0, 3, 6, 7}  # the first and the last eighth, and every third between
    for i in range(LAYERS):
        wide = "q6_K" if i in more else "q4_K"
        expect(types[f"blk.{i}.attn_v.weight"] == wide and types[f"blk.{i}.ffn_down.weight"] == wide, f"Q4_K_M: layer {i}")
        expect(types[f"blk.{i}.attn_q.weight"] == "q4_K", f"Q4_K_M: layer {i}, queries")
    expect(types["output.weight"] == "q6_K" and types["token_embd.weight"] == "q4_K", "Q4_K_M: output and embedding")
    run("quantize", path, out, "Q4_K_M", "--pure")
    expect(set(types_of(out).values()) == {"q4_K", "f32"}, "quantize --pure")
    run("quantize", path, out, "Q4_0", "--output-tensor-type", "f16", "--token-embedding-type", "q8_0", "--tensor-type=attn_[kv]=q5_1")
    types = types_of(out)
    expect([types[n] for n in ("output.weight", "token_embd.weight", "blk.2.attn_k.weight", "blk.2.attn_q.weight")] ==
           ["f16", "q8_0", "q5_1", "q4_0"], "quantize: types by hand")
    llama_model(path, dim=96)  # rows that no super-block divides
    run("quantize", path, out, "Q4_K_M")
    expect(types_of(out)["blk.1.attn_q.weight"] == "q5_0", "quantize: narrow rows take smaller blocks")
    again = os.path.join(folder, "again.gguf")
    one, two = (run("quantize", path, p, "Q6_K", "-t", t) and open(p, "rb").read() for p, t in ((out, "1"), (again, "3")))
    expect(one == two, "quantize: the bytes do not depend on the threads")
    run("quantize", path, out, "Q9_9", code=2)
    run("quantize", path, out, code=2)
    run("quantize", path, out, "Q4_0", "--output-tensor-type", "i32", code=2)
    importance(folder)
    failures(folder)


def importance(folder):
    path, out, matrix = (os.path.join(folder, n) for n in ("m.gguf", "q.gguf", "im.gguf"))
    made = llama_model(path)
    name = "blk.0.attn_q.weight"
    sums = struct.pack("<256f", *(9.0 if i % 8 == 0 else 0.01 for i in range(256)))
    keys = [("general.type", 8, text("imatrix")), ("imatrix.chunk_count", 4, u32(5))]
    gguf(matrix, keys, [(name + ".in_sum2", (256,), 0, sums), (name + ".counts", (1,), 0, struct.pack("<f", 3))])
    run("quantize", path, out, "Q3_K_S")
    plain = {t["name"]: t["xxh64"] for t in look(out, "--hash")["tensors"]}
    note = run("quantize", path, out, "Q3_K_S", "--imatrix", matrix).stderr
    weighed = {t["name"]: t["xxh64"] for t in look(out, "--hash")["tensors"]}
    expect("not in the importance matrix" in note, "quantize --imatrix says what it lacks")
    expect({n for n in made if plain[n] != weighed[n]} == {name}, "quantize --imatrix changes the tensors it knows")
    expect(look(out)["keys"]["quantize.imatrix.chunks_count"]["value"] == 5, "quantize --imatrix: keys")
    run("quantize", path, out, "Q3_K_S", "--imatrix", path, code=1)


def failures(folder):
    """A full disk and Ctrl-C leave what was there, and nothing else."""
    path, out = os.path.join(folder, "big.gguf"), os.path.join(folder, "old.gguf")
    keys = [("general.architecture", 8, text("llama")), ("llama.block_count", 4, u32(1))]
    gguf(path, keys, [("blk.0.ffn_up.weight", (4096, 256), 0, floats(256, 1) * 4096)])
    with open(out, "wb") as file:
        file.write(b"old")
    before = sorted(os.listdir(folder))

    def small_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = run("quantize", path, out, "F16", code=1, preexec_fn=small_disk)
    expect("no room" in done.stderr, f"a full disk is named: {done.stderr}")
    expect(sorted(os.listdir(folder)) == before and open(out, "rb").read() == b"old", "a full disk leaves the old file")
    going = subprocess.Popen([QUERN, "quantize", path, out, "IQ1_M", "-t", "1"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(0.5)
    going.send_signal(signal.SIGINT)
    _, said = going.communicate(timeout=300)
    expect(going.returncode == 130 and b"stopped" in said, f"Ctrl-C: exit code {going.returncode}, {said}")
    expect(sorted(os.listdir(folder)) == before and open(out, "rb").read() == b"old", "Ctrl-C leaves the old file")


def convert_llama2c(folder):
    path, out = os.path.join(folder, "m.bin"), os.path.join(folder, "c.gguf")
    dim, hidden, layers, heads, kv, vocab, context = 16, 24, 2, 4, 2, 7, 10
    parts = {"token_embd": (vocab, dim), "attn_norm": (layers, dim), "attn_q": (layers, dim, dim), "attn_k": (layers, dim // 2, dim),
             "attn_v": (layers, dim // 2, dim), "attn_output": (layers, dim, dim), "ffn_norm": (layers, dim),
             "ffn_gate": (layers, hidden, dim), "ffn_down": (layers, dim, hidden), "ffn_up": (layers, hidden, dim), "output_norm": (dim,)}
    data = {name: floats(count_of(shape), name) for name, shape in parts.items()}
    body = struct.pack("<7i", dim, hidden, layers, heads, kv, vocab, context) + b"".join(data.values())
    with open(path, "wb") as file:
        file.write(body + b"\0" * (4 * 2 * context * 2))
    tokens = [b"<unk>", b"\n<s>\n", b"\n</s>\n", b"<0x0A>", b" ", b" a", b"bc"]
    with open(os.path.join(folder, "tokenizer.bin"), "wb") as file:
        file.write(struct.pack("<i", 6) + b"".join(struct.pack("<fi", -i, len(t)) + t for i, t in enumerate(tokens)))
    run("convert", path, out, "--name", "small")
    made = look(out, "--hash")
    value = {name: key["value"] for name, key in made["keys"].items()}
    expect(value["tokenizer.ggml.tokens"] == ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "\u2581a", "bc"], "llama2.c: tokens")
    expect(value["tokenizer.ggml.token_type"] == [2, 3, 3, 6, 1, 1, 1], "llama2.c: types of tokens")
    expect(value["llama.rope.dimension_count"] == 4 and value["llama.feed_forward_length"] == hidden, "llama2.c: keys")
    hashes = {t["name"]: t["xxh64"] for t in made["tensors"]}
    for name, shape in parts.items():
        if name in ("token_embd", "output_norm"):
            expect(hashes[name + ".weight"] == xxh64(data[name]), f"llama2.c: {name}")
        else:
            each = len(data[name]) // layers
            for i in range(layers):
                expect(hashes[f"blk.{i}.{name}.weight"] == xxh64(data[name][i * each:(i + 1) * each]), f"llama2.c: {name} {i}")
    with open(path, "wb") as file:
        file.write(body)
    expect("the file ends" in run("convert", path, out, code=1).stderr, "llama2.c: a file that was cut short")
    run("convert", path, out, "--tokenizer", os.path.join(folder, "none.bin"), code=1)


def safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, value) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    body = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(body) + (-len(body) % 8)) + body + b" " * (-len(body) % 8) + data)


def convert_hf(folder):
    top, out = os.path.join(folder, "hf"), os.path.join(folder, "h.gguf")
    os.mkdir(top)
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (12, 8), "model.norm.weight": (8,), layer + "input_layernorm.weight": (8,),
              layer + "self_attn.q_proj.weight": (8, 8), layer + "self_attn.k_proj.weight": (4, 8),
              layer + "block_sparse_moe.gate.weight": (2, 8)}
    for expert in range(2):
        shapes[layer + f"block_sparse_moe.experts.{expert}.w2.weight"] = (8, 6)
    tensors = {name: (shape, floats(count_of(shape), name)) for name, shape in shapes.items()}
    safetensors(os.path.join(top, "model.safetensors"), tensors)
    config = {"architectures": ["MixtralForCausalLM"], "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
              "num_key_value_heads": 1, "intermediate_size": 6, "num_local_experts": 2, "rms_norm_eps": 1e-5, "vocab_size": 12}

    def put(name, what):
        with open(os.path.join(top, name), "w", encoding="utf-8") as file:
            json.dump(what, file)

    put("config.json", config)
    put("tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
                           "added_tokens": [{"id": 3, "content": "<s>", "special": True}], "pre_tokenizer": {"type": "ByteLevel"}})
    put("tokenizer_config.json", {"bos_token": "<s>", "add_bos_token": False, "chat_template": "{{ x }}"})
    run("convert", top, out)
    made = look(out, "--hash")
    value = {name: key["value"] for name, key in made["keys"].items()}
    expect(value["tokenizer.ggml.tokens"][:5] == ["a", "b", "ab", "<s>", "[PAD4]"] and value["tokenizer.ggml.merges"] == ["a b"], "hf: tokens")
    expect(value["tokenizer.ggml.pre"] == "gpt-2" and value["tokenizer.ggml.bos_token_id"] == 3, "hf: tokenizer")
    expect(value["llama.expert_count"] == 2 and value["tokenizer.chat_template"] == "{{ x }}", "hf: keys")
    got = {t["name"]: t for t in made["tensors"]}
    rows = [tensors[layer + "self_attn.q_proj.weight"][1][32 * i:32 * i + 32] for i in range(8)]
    pairs = b"".join(rows[i] for i in (0, 2, 1, 3, 4, 6, 5, 7))  # halves of each head become pairs
    expect(got["blk.0.attn_q.weight"]["xxh64"] == xxh64(pairs), "hf: rotary halves to pairs")
    stacked = b"".join(tensors[layer + f"block_sparse_moe.experts.{e}.w2.weight"][1] for e in range(2))
    down = got["blk.0.ffn_down_exps.weight"]
    expect(down["shape"] == [2, 8, 6] and down["xxh64"] == xxh64(stacked), "hf: experts are stacked")
    put("config.json", {**config, "architectures": ["LlamForCausalLM"]})
    said = run("convert", top, out, code=1).stderr
    expect("LlamForCausalLM" in said and "LlamaForCausalLM" in said, "hf: an unknown architecture names what is near")
    put("config.json", {**config, "num_local_experts": 3})
    expect("2 of its 3 parts" in run("convert", top, out, code=1).stderr, "hf: an expert that is missing")
    put("config.json", config)
    put("tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}, "pre_tokenizer": {"type": "Odd"}})
    expect("--pre" in run("convert", top, out, code=1).stderr, "hf: an unknown way to cut text")
    run("convert", top, out, "--pre", "llama-bpe", "--type", "Q8_0")


def large_numbers(folder):
    """Names and config.json may hold any number: what is computed from them stays in its bounds, and what cannot be is refused."""
    path, out, top = (os.path.join(folder, n) for n in ("m.gguf", "q.gguf", "hf"))
    keys = [("general.architecture", 8, text("llama")), ("llama.block_count", 10, struct.pack("<Q", (1 << 63) - 1))]
    gguf(path, keys, [(f"blk.{n}.attn_v.weight", (2, 256), 0, floats(512, n)) for n in ((1 << 63) - 1, 10 ** 30, 7)])
    run("quantize", path, out, "Q4_K_M")
    expect(len(types_of(out)) == 3, "quantize: layers of any number")
    os.mkdir(top)
    name = "gpt_neox.layers.0.attention.query_key_value.weight"
    safetensors(os.path.join(top, "model.safetensors"), {name: ((131072, 1), bytes(4 * 131072))})
    config = {"architectures": ["GPTNeoXForCausalLM"], "num_hidden_layers": 1, "hidden_size": 96, "num_attention_heads": 2,
              "max_position_embeddings": 64, "vocab_size": 2}
    with open(os.path.join(top, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump({"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": ["a a"]}, "pre_tokenizer": {"type": "ByteLevel"}}, file)
    heads = ((1 << 64) + 131072) // (3 * 65536)  # times 3 * 65536, in 64 bits, is the number of rows there are
    for change, words in (({"hidden_size": heads, "num_attention_heads": heads, "head_dim": 65536}, "cannot be embedding_length"),
                          ({"hidden_size": 1 << 21}, "a width of"), ({"max_position_embeddings": 1e300}, "cannot be context_length"),
                          ({"max_position_embeddings": -1}, "cannot be context_length"), ({"vocab_size": 1 << 32}, "cannot be vocab_size"),
                          ({"rotary_pct": 1e9, "rope_scaling": {"rope_type": "llama3"}}, "that turns"),
                          ({"rope_scaling": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 1e300}}, "that turns")):
        with open(os.path.join(top, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**config, **change}, file)
        said = run("convert", top, out, code=1).stderr
        expect(words in said, f"hf: {change}: {said}")


def inputs_stay(folder):
    """Nothing that is read is written over, by whatever name it is given: the file, another part of it, a file of the folder."""
    one, two, top = (os.path.join(folder, n) for n in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "hf"))
    os.mkdir(top)
    inside = os.path.join(top, "config.json")
    link = os.path.join(folder, "other.gguf")
    for path in (one, two, inside):
        with open(path, "w", encoding="utf-8") as file:
            file.write("as it was")
    os.link(two, link)
    for words in (("quantize", one, one, "Q8_0"), ("quantize", one, two, "Q8_0"), ("quantize", one, link, "Q8_0"), ("convert", top, inside)):
        said = run(*words, code=2).stderr
        expect("is what is read" in said, f"{words}: {said}")
    for path in (one, two, inside):
        with open(path, encoding="utf-8") as file:
            expect(file.read() == "as it was", f"{path} was written over")


with tempfile.TemporaryDirectory() as made_here:
    for test in (inspect, quantize, convert_llama2c, convert_hf, large_numbers, inputs_stay):
        place = os.path.join(made_here, test.__name__)
        os.mkdir(place)
        test(place)
print("model files:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
