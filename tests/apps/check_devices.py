#!/usr/bin/env python3
"""What `quern devices` says of the machine and of the build, and what CMake writes down as missing. Usage: check_devices.py QUERN

Needs nothing but Python; the part about CMake is passed over, with a sentence, where CMake or Ninja is not here."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

QUERN = os.path.abspath(sys.argv[1])
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
NO_KERNELS = dict(os.environ, QUERN_CPU="none")
faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print("FAULT:", what[:600])


def run(*words, **more):
    done = subprocess.run([QUERN, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **more)
    expect(done.returncode == 0, f"{words}: exit code {done.returncode}: {done.stderr}")
    return done


def devices():
    told = json.loads(run("devices", "--json").stdout)
    shown = run("devices").stdout
    lacking = shown[shown.index("this build lacks"):]
    expect(sorted(told) == ["devices", "lacks"], f"devices --json: {sorted(told)}")
    expect(told["devices"][0]["backend"] == "cpu" and "\n" in shown, f"the first device: {told['devices'][0]}")
    for device in told["devices"]:
        expect(f"{device['backend']}:{device['index']}  {device['name']}\n" in shown, f"{device['name']} is not shown")
    expect(("this build lacks nothing\n" in shown) == (told["lacks"] == []), f"lacks: {told['lacks']} {shown}")
    for row in told["lacks"]:
        line = re.search(rf"^  {re.escape(row['part'])} +(.*)$", lacking, re.M)
        expect(line and line.group(1) == row["why"] and row["why"], f"{row} is not shown")


def masked():
    """Kernels that no level may run are none, and the level that has the name has kernels."""
    none = json.loads(run("devices", "--json", env=NO_KERNELS).stdout)["devices"][0]
    expect(none["kernels"] == 0 and none["name"] == "references alone", f"QUERN_CPU=none: {none}")
    cpu = json.loads(run("devices", "--json").stdout)["devices"][0]
    expect((cpu["kernels"] > 0) == (" kernels, " in cpu["name"]), f"{cpu['name']}: {cpu['kernels']} kernels")


def configured(folder, *switches):
    """Rows of a build that is configured and not built: part and why."""
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-DQUERN_TESTS=OFF", *switches], capture_output=True, text=True)
    expect(done.returncode == 0, f"cmake {switches}: {done.stderr}")
    with open(os.path.join(folder, "build_parts.c"), encoding="utf-8") as file:
        rows = dict(re.findall(r'^    \{"(.*?)", "(.*)"\},$', file.read(), re.M))
    for part, why in rows.items():
        expect(f"Left out: {part}: {why}\n" in done.stdout, f"cmake does not say that {part} is left out")
    return rows


def missing(folder):
    """Whatever is not on a machine has a row, and nothing else has."""
    without = [f"-D{name}=" for name in ("PCRE2_LIBRARY", "UTF8PROC_LIBRARY", "MICROHTTPD_LIBRARY", "NODE_PROGRAM")]
    rows = configured(os.path.join(folder, "bare"), "-DGLSLC=", "-DQUERN_CPU_LEVELS=none", *without)
    expect(list(rows) == ["kernels", "Vulkan", "PCRE2", "utf8proc", "profile serve", "profile html"], f"a bare machine: {list(rows)}")
    expect("(Debian: glslc)" in rows.get("Vulkan", ""), f"Vulkan: {rows}")
    rows = configured(os.path.join(folder, "off"), "-DQUERN_CPU_LEVELS=all", "-DQUERN_VULKAN=OFF", "-DQUERN_MODELS=OFF", "-DQUERN_PROFILER=OFF")
    expect(rows == {"Vulkan": "QUERN_VULKAN is off", "models": "QUERN_MODELS is off", "profiler": "QUERN_PROFILER is off"}, f"all off: {rows}")


def old_compiler(folder):
    """A glslc that knows no extension costs the shaders that need one, by name, and those alone."""
    if not shutil.which("glslc") or not os.path.exists("/usr/include/vulkan/vulkan_core.h"):
        print("passed over: glslc or the Vulkan headers are not here")
        return
    old = os.path.join(folder, "old-glslc")
    with open(old, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexit 1\n")
    os.chmod(old, 0o755)
    rows = configured(os.path.join(folder, "old"), f"-DGLSLC={old}", "-DQUERN_CPU_LEVELS=none", "-DNODE_PROGRAM=")
    needy = set()
    glsl = os.path.join(ROOT, "src", "vulkan", "glsl")
    for name in os.listdir(glsl):
        with open(os.path.join(glsl, name), encoding="utf-8") as file:
            if name.endswith(".comp") and re.search(r"^#extension GL_(KHR|NV|EXT)_.*require", file.read(), re.M):
                needy.add(f"shader {name[:-5]}")
    expect(needy and {part for part in rows if part.startswith("shader")} == needy, f"shaders: {rows}, not {needy}")
    expect(all(why.startswith("old-glslc does not know GL_") for part, why in rows.items() if part in needy), f"why: {rows}")


devices()
masked()
if shutil.which("cmake") and shutil.which("ninja"):
    with tempfile.TemporaryDirectory() as place:
        missing(place)
        old_compiler(place)
else:
    print("passed over: cmake or ninja is not here")
print("devices:", f"{len(faults)} faults" if faults else "all as it should be")
sys.exit(1 if faults else 0)
