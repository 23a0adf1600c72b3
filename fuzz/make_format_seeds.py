#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf and fuzz_safetensors into fuzz/corpus: small files that reach every part of the readers."""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = "BbHhIif?"  # GGUF's types 0 to 7


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def gguf(keys, tensors, data, version=3, align=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys)
    for name, dims, kind, offset in tensors:
        head += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
    return head + b"\0" * (-len(head) % align) + data


def safetensors(header, data):
    body = json.dumps(header, ensure_ascii=False).encode()
    body += b" " * (-len(body) % 8)
    return struct.pack("<Q", len(body)) + body + data


def gguf_seeds():
    scalars = [key(f"s{i}", i, struct.pack("<" + f, 1)) for i, f in enumerate(FORMATS)]
    scalars += [key("u64", 10, struct.pack("<Q", 5)), key("i64", 11, struct.pack("<q", -5)), key("f64", 12, struct.pack("<d", 0.5))]
    strings = [key("general.architecture", 8, text("llama")), key("tokens", 9, array(8, [text("<s>"), text(""), text("\u2581a")]))]
    nested = [key("nested", 9, array(9, [array(9, [array(0, [b"a", b"b"])]), array(8, [text("x")])]))]
    yield "empty", gguf([], [], b"")
    yield "scalars", gguf(scalars, [], b"")
    yield "version2", gguf(strings, [], b"", version=2)
    yield "nested", gguf(nested, [], b"")
    yield "tensors", gguf(strings, [("a", (4, 2), 0, 0), ("b", (32, 2), 2, 32), ("c", (256,), 12, 96)], bytes(range(256)) * 2)
    yield "scalar_tensor", gguf([], [("s", (), 24, 0), ("z", (0, 3), 1, 0)], b"\x01")
    yield "aligned", gguf([key("general.alignment", 4, struct.pack("<I", 64))], [("a", (8,), 1, 64)], b"\0" * 80, align=64)
    yield "overlap", gguf([], [("a", (16,), 0, 0), ("b", (16,), 0, 32)], b"\0" * 96)
    yield "cut", gguf([], [("a", (16,), 0, 0)], b"\0" * 63)
    yield "split", gguf([key("split.count", 2, b"\2\0"), key("split.no", 2, b"\0\0")], [], b"")
    yield "twice", gguf([scalars[0], scalars[0]], [], b"")
    yield "claims", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + b"\0" * 40


def safetensors_seeds():
    one = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    yield "one", safetensors({"__metadata__": {"format": "pt"}, "w": one}, b"\0" * 24)
    yield "odd", safetensors({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                              "b": {"dtype": "BF16", "shape": [], "data_offsets": [3, 5]}}, b"12345")
    yield "overlap", safetensors({"a": one, "b": {**one, "data_offsets": [12, 36]}}, b"\0" * 36)
    yield "gap", safetensors({"b": {**one, "data_offsets": [1, 25]}}, b"\0" * 25)
    yield "names", safetensors({"\u00e9\n\U0001f600": one}, b"\0" * 24)
    yield "escapes", struct.pack("<Q", 32) + b'{"__metadata__":{"\\u00e9\\n":""}}'
    yield "config", json.dumps({"architectures": ["LlamaForCausalLM"], "eps": 1e-05, "tie": False, "none": None,
                                "rope": {"factor": 8.0, "kinds": [1, 2.5]}, "mixed": [1, "a", [True], {"k": []}]}).encode()
    yield "merges", json.dumps({"model": {"vocab": {"a": 0, "\u0120b": 1}, "merges": [["a", "b"], ["c", "d"]]}}, indent=1).encode()
    yield "index", json.dumps({"weight_map": {"w": "model-00001-of-00002.safetensors"}}).encode()
    yield "deep", b"[" * 70 + b"]" * 70
    yield "numbers", b'[-0, 0.5e+3, 1E400, 9223372036854775807, 9223372036854775808, -1e-400]'


for folder, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds())):
    os.makedirs(os.path.join(HERE, "corpus", folder), exist_ok=True)
    for name, data in seeds:
        with open(os.path.join(HERE, "corpus", folder, name), "wb") as file:
            file.write(data)
