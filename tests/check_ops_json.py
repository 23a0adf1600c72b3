#!/usr/bin/env python3
"""Reads the output of `quern ops --json` as a stranger would, and holds it against the rows of the op table."""
import glob
import json
import re
import sys

rows = {}
for part in glob.glob("include/quern/ops/*.def"):
    with open(part, encoding="utf-8") as file:
        for row in re.split(r"^(?=QN_OP\()", file.read(), flags=re.M)[1:]:
            name = re.match(r"QN_OP\((\w+)", row).group(1)
            rows[name] = "QN_NO_VJP(" not in row

with open(sys.argv[1], encoding="utf-8") as file:
    listing = json.load(file)
ops = {op["name"]: op for op in (listing["ops"] if isinstance(listing, dict) else listing)}

faults = [f"{name}: in the table, not in the listing" for name in rows if name not in ops]
faults += [f"{name}: in the listing, not in the table" for name in ops if name not in rows]
for name, op in ops.items():
    if op.get("reference") is not True:
        faults.append(f"{name}: reference is {op.get('reference')!r}")
    if bool(op.get("gradient")) != rows.get(name):
        faults.append(f"{name}: gradient is {op.get('gradient')!r}, the table says {rows.get(name)}")
print("\n".join(faults) if faults else f"{len(ops)} ops agree with the table")
sys.exit(1 if faults else 0)
