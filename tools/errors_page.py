#!/usr/bin/env python3
"""Prints docs/errors.md from include/quern/status.def and reasons.def. Usage: tools/errors_page.py >docs/errors.md
tests/apps/check_docs.py fails when the page is stale."""
import os
import re

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "include", "quern")

HEAD = """# Errors

Generated from `include/quern/status.def` and `reasons.def` by `tools/errors_page.py`; the tests fail when it is stale.

No function of the library aborts, exits or prints. A function that can fail returns a `qn_status` and tells the rest in one of two
records:

- A **request** (`qn_dispatch`, `qn_infer`, `qn_workspace_bytes`) fills a `qn_result`: status, argument, reason, axis, expected and
  actual number. `qn_result_format` makes the sentence: the op, the argument, then the sentence of the reason below with the
  numbers in it. Nothing was written when a request is rejected.
- **Everything else** fills a `qn_error` of 512 bytes: status and sentence. Each layer may put its own words in front
  (`loading model.gguf: tensor 3: ...`). A text that was cut ends in `...`.

The `quern` command prints that sentence behind its own name on standard error.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | failed |
| 2 | called wrongly |
| 130 | interrupted |

## Status codes

Numbers are never reused. `qn_status_name` and `qn_status_meaning` give the two texts.

| number | name | meaning |
|---:|---|---|
"""

REASONS = """
## Reasons of a rejected request

`{actual}` and `{expected}` stand for numbers (or names of dtypes), `{dim}` for an axis, entry or step.

| reason | sentence |
|---|---|
"""


def rows(name, pattern):
    with open(os.path.join(TABLES, name), encoding="utf-8") as file:
        return re.findall(pattern, file.read(), re.M)


def cell(text):
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", text).replace("|", "\\|")


print(HEAD + "".join(f"| {number} | `QN_{name}` | {cell(meaning)} |\n" for name, number, meaning in
                     rows("status.def", r'^QN_STATUS\((\w+), (\d+), "(.*)"\)$')) + REASONS +
      "".join(f"| `{name}` | {cell(sentence)} |\n" for name, sentence in rows("reasons.def", r'^QN_REASON\((\w+), "(.*)"\)$')),
      end="")
