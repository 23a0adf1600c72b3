#!/usr/bin/env python3
"""Writes vectors-mini/: a tiny folder in the form of the golden vectors (index.jsonl + data.bin), worked out by hand.

It keeps `qn_check vectors` tested where the large folder is not at hand. Every case is small enough to be checked by eye, and
each is there for one trait of the form: source order, parameter words, a null source, ties, blocks, infinities, empty tensors.
Extents are in ggml's order, fastest first. Run it from anywhere; the output is the same every time.
"""
import json
import os
import struct

CODES = {"f32": "f", "i32": "i", "i64": "q"}
data = bytearray()
lines = []


def bits(value):
    """A float parameter as the int32 word that ggml stores."""
    return struct.unpack("<i", struct.pack("<f", value))[0]


def tensor(dtype, ne, values, nb=None):
    raw = values if isinstance(values, bytes) else struct.pack(f"<{len(values)}{CODES[dtype]}", *values)
    while len(data) % 64:
        data.append(0)
    ne = list(ne) + [1] * (4 - len(ne))
    if nb is None:
        nb, step = [], len(raw) // max(1, ne[0] * ne[1] * ne[2] * ne[3]) or 4
        for extent in ne:
            nb.append(step)
            step *= extent
    record = {"type": dtype, "ne": ne, "nb": nb, "off": len(data), "bytes": len(raw)}
    data.extend(raw)
    return record


def case(op, name, src, dst, params=(), max_nmse=1e-7):
    words = list(params) + [0] * (16 - len(params))
    lines.append({"op": op, "case": name, "max_nmse": max_nmse, "params": words, "src": src, "dst": dst})


def f32(ne, values, nb=None):
    return tensor("f32", ne, values, nb)


INF = float("inf")

case("ADD", "ADD(b tiled over a)", [f32([3, 2], [1, 2, 3, 4, 5, 6]), f32([3], [10, 20, 30])],
     f32([3, 2], [11, 22, 33, 14, 25, 36]))
case("SUB", "SUB(a was a transposed view)", [f32([2, 2], [1, 2, 3, 4], [8, 4, 16, 16]), f32([2, 2], [4, 3, 2, 1])],
     f32([2, 2], [-3, -1, 1, 3]))
case("UNARY.RELU", "RELU(sub-op in the name)", [f32([4], [-1, 0, 2, -3])], f32([4], [0, 0, 2, 0]), [6])
case("GLU.REGLU", "REGLU(halves swapped)", [f32([4], [2, 3, -1, 5])], f32([2], [0, 15]), [0, 1])
case("SCALE", "SCALE(two float words)", [f32([3], [1, 2, 3])], f32([3], [2.5, 4.5, 6.5]), [bits(2), bits(0.5)])
case("MUL_MAT", "MUL_MAT(b times a transposed)", [f32([2, 2], [1, 2, 3, 4]), f32([2, 1], [5, 6])], f32([2, 1], [17, 39]))
case("SOFT_MAX", "SOFT_MAX(no mask, one sink)", [f32([2], [0, 0]), None, f32([1], [0])], f32([2], [1 / 3, 1 / 3]), [bits(1)])
case("DIAG_MASK_INF", "DIAG_MASK_INF(infinities agree)", [f32([2, 2], [1, 2, 3, 4])], f32([2, 2], [1, -INF, 3, 4]), [0])
case("CONCAT", "CONCAT(dim 1 is the axis before the last)", [f32([2, 1], [1, 2]), f32([2, 1], [3, 4])],
     f32([2, 2], [1, 2, 3, 4]), [1])
case("PAD", "PAD(left and right of two axes)", [f32([2, 1], [1, 2])], f32([4, 2], [0, 1, 2, 0, 0, 0, 0, 0]), [1, 1, 0, 1])
case("PERMUTE", "PERMUTE(a three-cycle)", [f32([2, 2, 2], range(1, 9))], f32([2, 2, 2], [1, 5, 2, 6, 3, 7, 4, 8]), [1, 2, 0, 3],
     max_nmse=0)
case("TRANSPOSE", "TRANSPOSE()", [f32([2, 3], [1, 2, 3, 4, 5, 6])], f32([3, 2], [1, 3, 5, 2, 4, 6]), max_nmse=0)
case("SET_ROWS", "SET_ROWS(rows, indices, table)",
     [f32([2, 1], [7, 8]), tensor("i64", [1], [1]), f32([2, 2], [1, 2, 3, 4])], f32([2, 2], [1, 2, 7, 8]))
case("SET_ROWS", "SET_ROWS(no rows at all)", [f32([2, 0], []), tensor("i64", [0], []), f32([2, 2], [1, 2, 3, 4])],
     f32([2, 2], [1, 2, 3, 4]))
case("TOP_K", "TOP_K(any order)", [f32([4], [3, 9, 1, 7])], tensor("i32", [2], [3, 1]))
case("ARGSORT", "ARGSORT(descending, a tie the other way round)", [f32([3], [5, 5, 6])], tensor("i32", [3], [2, 1, 0]), [1])
case("CPY", "CPY(f32 to i32 in another shape)", [f32([4], [1.9, -1.9, 0, 3]), tensor("i32", [2, 2], [0, 0, 0, 0])],
     tensor("i32", [2, 2], [1, -1, 0, 3]), max_nmse=0)
block = struct.pack("<e32b", 0.5, *range(-16, 16))
case("GET_ROWS", "GET_ROWS(a block type)", [tensor("q8_0", [32, 1], block), tensor("i32", [1], [0])],
     f32([32, 1], [v / 2 for v in range(-16, 16)]))
case("OPT_STEP_SGD", "OPT_STEP_SGD(in place)", [f32([2], [1, 2]), f32([2], [4, 8]), f32([2], [0.5, 0])], f32([2], [-1, -2]))
case("ARANGE", "ARANGE(no source)", [], f32([3], [0, 2, 4]), [bits(0), bits(5), bits(2)])

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors-mini")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "index.jsonl"), "w", encoding="ascii") as out:
    for line in lines:
        out.write(json.dumps(line) + "\n")
with open(os.path.join(folder, "data.bin"), "wb") as out:
    out.write(data)
