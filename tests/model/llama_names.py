#!/usr/bin/env python3
"""The names of architectures that llama.cpp knows, asked of a library built from it. Usage: llama_names.py LIBRARY >llama_names.txt

The library of the Python package xllamacpp is one: pip download --no-deps xllamacpp, unzip, xllamacpp/xllamacpp.abi3.so."""
import ctypes
import sys

name_of = ctypes.CDLL(sys.argv[1])._Z13llm_arch_name8llm_arch  # const char *llm_arch_name(llm_arch)
name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.c_int]
names = []
while (name := name_of(len(names)).decode()) != "(unknown)":
    names.append(name)
print("\n".join(sorted(names)))
