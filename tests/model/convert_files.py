"""What check_convert.py reads and writes: GGUF files, Hugging Face folders, and the orders in which makers keep their rows."""
import array
import base64
import json
import math
import os
import struct


# ---- GGUF, read and written. A tensor is (shape, floats).
def read_gguf(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 8

    def take(form):
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            item, count = take("I"), take("Q")
            return [value(item) for _ in range(count)]
        return take("BbHhIif?"[kind] if kind < 8 else {10: "Q", 11: "q", 12: "d"}[kind])

    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}
    for _ in range(n_keys):
        name = value(8)
        keys[name] = value(take("I"))
    places = []
    for _ in range(n_tensors):
        name = value(8)
        shape = [take("Q") for _ in range(take("I"))][::-1]
        assert take("I") == 0, name + " is not f32"
        places.append((name, shape, take("Q")))
    base = (at + 31) // 32 * 32
    tensors = {}
    for name, shape, offset in places:
        numbers = array.array("f")
        numbers.frombytes(data[base + offset:base + offset + 4 * math.prod(shape)])
        tensors[name] = (shape, numbers)
    return keys, tensors


def write_gguf(path, keys, tensors):
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def value(v):
        if isinstance(v, bool):
            return struct.pack("<I?", 7, v)
        if isinstance(v, int):
            return struct.pack("<II", 4, v)
        if isinstance(v, float):
            return struct.pack("<If", 6, v)
        return struct.pack("<I", 8) + text(v)

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(k) + value(v) for k, v in keys.items())
    body = b""
    for name, (shape, numbers) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in shape[::-1])
        head += struct.pack("<IQ", 0, len(body))
        body += numbers.tobytes() + b"\0" * (-4 * len(numbers) % 32)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + body)


# ---- Hugging Face folders
def write_folder(folder, config, tensors, raw=None, words=False):
    os.makedirs(folder, exist_ok=True)
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(numbers)]}
        data += numbers.tobytes()
    for name, (shape, numbers) in (raw or {}).items():
        header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += bytes(numbers)
    body = json.dumps(header).encode()
    body += b" " * (-len(body) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(body)) + body + data)
    tokens = {"[CLS]": 0, "[SEP]": 1, "##s": 2, "cat": 3, "[UNK]": 4} if words else {"a": 0, "b": 1, "ab": 2}
    kind = {"type": "WordPiece", "vocab": tokens} if words else {"type": "BPE", "vocab": tokens, "merges": ["a b"]}
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"} if words else {}
    for name, what in (("config.json", {"vocab_size": 128, **config}), ("tokenizer_config.json", special),
                       ("tokenizer.json", {"model": kind, "pre_tokenizer": {"type": "BertPreTokenizer" if words else "ByteLevel"}})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(what, file)


def sentencepiece(pieces, kind, **normalizer):
    """tokenizer.model of pieces (text, score, type): 1 normal, 2 unknown, 3 control. kind 1: unigram, 2: BPE."""
    def put(number, value):
        if isinstance(value, float):
            return bytes([number << 3 | 5]) + struct.pack("<f", value)
        if isinstance(value, int):
            return bytes([number << 3 & 127 | (128 if number > 15 else 0)] + ([number >> 4] if number > 15 else []) + [value])
        return bytes([number << 3 | 2, len(value)]) + value
    numbers = {"charsmap": 2, "prefix": 3, "single": 4}
    body = b"".join(put(1, put(1, text.encode()) + put(2, float(score)) + put(3, which)) for text, score, which in pieces)
    return body + put(2, put(3, kind)) + put(3, b"".join(put(numbers[name], value) for name, value in normalizer.items()))


def write_words(folder, tokenizer, settings=None):
    """Another tokenizer in a folder that is there: what tokenizer.json says, or the bytes of tokenizer.model."""
    if isinstance(tokenizer, bytes):
        os.remove(os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
            file.write(tokenizer)
        tokenizer = None
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)):
        if content is not None:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file)


def scaled(tensors, name, base):
    """What GGUF keeps beside a matrix, in the matrix: these folders have no place for it."""
    out = dict(tensors)
    for full in tensors:
        part, _, kind = full.rpartition(".")
        if kind == "scale" and part + ".weight" in out:
            ffn = ".ffn_" in full
            if ffn and name not in ("llama", "qwen3", "qwen3moe"):
                continue
            for ending in (".weight", ".bias") if ffn and "exps" not in full else (".weight",):
                if part + ending in out:
                    shape, numbers = out[part + ending]
                    each = len(numbers) // len(tensors[full][1])
                    out[part + ending] = shape, array.array("f", (x * tensors[full][1][i // each] for i, x in enumerate(numbers)))
        if full.endswith("ffn.act.scales"):
            down = full.replace("ffn.act.scales", "ffn_down.weight")
            shape, numbers = out[down]
            out[down] = shape, array.array("f", (x / tensors[full][1][i % shape[1]] for i, x in enumerate(numbers)))
    return {k: v for k, v in out.items() if k.endswith((".weight", ".bias"))}


def turned(tensor):
    (*more, rows, columns), numbers = tensor
    out = array.array("f")
    for first in range(0, len(numbers), rows * columns):
        for c in range(columns):
            out.extend(numbers[first + c:first + rows * columns:columns])
    return [*more, columns, rows], out


def row_list(tensor):
    shape, numbers = tensor
    width = math.prod(shape[1:])
    return [numbers[i * width:(i + 1) * width] for i in range(shape[0])]


def from_rows(rows, tail):
    out = array.array("f")
    for row in rows:
        out.extend(row)
    return [len(rows), *tail], out


def halves(tensor, heads):
    """Pairs of each head to halves: what the converter undoes."""
    rows, head = row_list(tensor), tensor[0][0] // heads
    order = [h * head + (2 * i if i < head // 2 else 2 * (i - head // 2) + 1) for h in range(heads) for i in range(head)]
    return from_rows([rows[i] for i in order], tensor[0][1:])


def grouped(q, k, v, heads, kv):
    """Queries of a group, its key, its value, group by group."""
    head, per, rows = k[0][0] // kv, heads // kv, []
    q_rows, k_rows, v_rows = row_list(q), row_list(k), row_list(v)
    for g in range(kv):
        rows += q_rows[g * per * head:(g + 1) * per * head] + k_rows[g * head:(g + 1) * head] + v_rows[g * head:(g + 1) * head]
    return from_rows(rows, q[0][1:])


def cut(tensor, *sizes):
    rows, at, parts = row_list(tensor), 0, []
    for size in sizes:
        parts.append(from_rows(rows[at:at + size], tensor[0][1:]))
        at += size
    return parts


def behind(a, b):
    """Rows of a, then rows of b, in each matrix of a stack."""
    size, out = math.prod(a[0][-2:]), array.array("f")
    for at in range(0, len(a[1]), size):
        out.extend(a[1][at:at + size])
        out.extend(b[1][at:at + size])
    return [*a[0][:-2], 2 * a[0][-2], a[0][-1]], out


def interleaved(a, b):
    """Elements of a and b in turn, on the last axis."""
    width, out = a[0][-1], array.array("f")
    for at in range(0, len(a[1]), width):
        for x, y in zip(a[1][at:at + width], b[1][at:at + width]):
            out.extend((x, y))
    return [*a[0][:-1], 2 * width], out


def charsmap():
    """A double array that turns A into a: the root's children lie from 256 on, the end of the match at 512."""
    nodes = [0] * 1024
    nodes[0], nodes[256 ^ 65], nodes[512] = 256 << 10, 65 | 1 << 8 | 512 << 10, 0
    return base64.b64encode(struct.pack("<I1024I", 4096, *nodes) + b"a\0").decode()
