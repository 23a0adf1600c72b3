#!/usr/bin/env python3
"""Compares two JSON files the strict way: order of keys and rows, integers against floats, every digit. Blanks do not count.

    prof_compare.py EXPECTED GOT

Either may be .gz. Prints the first difference and exits 1, or prints nothing and exits 0.
"""
import gzip
import json
import sys


class Number(str):
    """A number as it is written."""


def read(path):
    if str(path).endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return file.read()
    with open(path, encoding="utf-8") as file:
        return file.read()


def parse(text):
    """Objects become lists of pairs, so that order and repeated keys count."""
    return json.loads(text, object_pairs_hook=lambda pairs: ("object", pairs), parse_int=Number, parse_float=Number,
                      parse_constant=Number)


def show(value):
    text = repr(value[:2] if isinstance(value, (list, tuple)) else value)
    return text if len(text) <= 120 else text[:117] + "..."


def is_object(value):
    return isinstance(value, tuple)


def first_difference(expected, got):
    """None when equal, else a sentence. Walks without recursion: trees are deep."""
    todo = [("$", expected, got)]
    while todo:
        path, a, b = todo.pop()
        if type(a) is not type(b):
            return f"{path}: expected {show(a)}, got {show(b)}"
        if is_object(a):
            for (key, _), (other, _) in zip(a[1], b[1]):
                if key != other:
                    return f"{path}: expected key {key!r}, got {other!r}"
            if len(a[1]) != len(b[1]):
                longer = max(a[1], b[1], key=len)
                key = longer[min(len(a[1]), len(b[1]))][0]
                return f"{path}: key {key!r} is {'missing' if len(a[1]) > len(b[1]) else 'not expected'}"
            todo += [(f"{path}.{key}", x, y) for (key, x), (_, y) in zip(reversed(a[1]), reversed(b[1]))]
        elif isinstance(a, list):
            if len(a) != len(b):
                for i, (x, y) in enumerate(zip(a, b)):
                    if x != y:
                        return f"{path}: {len(a)} items expected, {len(b)} found; item {i}: expected {show(x)}, got {show(y)}"
                return f"{path}: {len(a)} items expected, {len(b)} found"
            todo += [(f"{path}[{i}]", a[i], b[i]) for i in reversed(range(len(a)))]
        elif a != b:
            return f"{path}: expected {show(a)}, got {show(b)}"
    return None


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    sys.setrecursionlimit(100000)
    difference = first_difference(parse(read(sys.argv[1])), parse(read(sys.argv[2])))
    if difference:
        print(difference)
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
