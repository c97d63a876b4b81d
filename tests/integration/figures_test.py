#!/usr/bin/env python3
"""Counts of tools/figures on a small tree in which each is known, and its lists on this tree.

  figures_test.py SOURCE_DIRECTORY
"""
import json
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1]).resolve()
failed = []


def figures(*arguments, status=0):
    done = subprocess.run([str(root / "tools/figures"), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != status:
        failed.append(f"figures {arguments}: exit status {done.returncode} instead of {status}: {done.stderr}")
    return done.stdout


def expect(what, value, wanted):
    if value != wanted:
        failed.append(f"{what}: {value} instead of {wanted}")


def counts(folder):
    return {row["name"]: row["value"] for row in json.loads(figures("--of", folder, "--json"))["figures"]}


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


LONG = "int long_one() {\n" + "  work();\n" * 61 + "}\n"  # 63 lines
MATCH = "# A list.\nMatch\tlib/manager/match.h\tlib/manager/match.h\n"
LOAD = "Load\tlib/manager/load.h\tlib/manager/load.h"
FILES = {
    "include/kvbm.h": "/* One.\n * Two. */\n\nint call(void); // beside\nint other(void);\n",
    "lib/base/thread/mutex.h": "class Mutex { std::mutex mutex_; };\n",
    "lib/base/a.h": "// Comment.\nstruct A { Mutex mutex_; };  // struct No {};\nstruct Declared;\nenum class E { one };\n",
    "lib/manager/manager.h": "struct Manager {};\n",
    "lib/manager/manager.cc": '#include "manager/manager.h"\n#include "manager/edge.h"\n',
    "lib/manager/edge.h": "class Edge final : public A {};\n",
    "lib/manager/edge.cc": '#include "manager/edge.h"\n#include "manager/manager.h"\n',
    "lib/manager/load.h": '#include "manager/match.h"\nstruct Load { bool weighs() const noexcept { return true; } };\n',
    "lib/manager/load.cc": '#include "manager/load.h"\n'
                           "// if (weighs()) counts for nothing here\n"
                           'const char* text = "weighs()";\n'
                           "bool Load::in_place() const { return true; }\n"
                           "void f() {\n  if (weighs()) g();\n  if (item.in_place() || flight_ == nullptr) g();\n"
                           "  if (slots[i] != kNoSlot) g();\n}\n",
    "lib/manager/match.h": "struct Match {};\n",
    "lib/manager/match.cc": '#include "manager/match.h"\n#include "manager/load.h"\n',
    "lib/capi/long.cc": LONG,
    "lib/device/context/device.cc": "int device();\n",
    "lib/device/context/device.h": "int device();\n",
    "lib/manager/part.cc": '#include "manager/part.h"\n#include "manager/of_part.h"\n',
    "lib/manager/part.h": "int part();\n",
    "lib/manager/of_part.h": "int of_part();\n",
    "cmake/parts.cmake": 'set(KVBM_PART_DEVICE "device/.*"\n  "manager/(part|other)")\nset(KVBM_PART_DISK "capi/long")\n',
    "tools/tool.cc": '#include "manager/manager.h"\n',
    "ucx_transport/u.cc": "static std::mutex lock;\n",
    "tools/figures_shapes.tsv": MATCH + LOAD + "\tlib/manager/match.h\n",
}

with tempfile.TemporaryDirectory() as name:
    tree = pathlib.Path(name)
    for path, text in FILES.items():
        write(tree, path, text)
    found = counts(tree)
    lines = sum(len(text.splitlines()) for path, text in FILES.items() if path.startswith("lib/"))
    kinds = 6  # Mutex, A, Manager, Edge, Load, Match
    expect("asks", found["asks"], 4)
    expect("manager.h", found["manager.h"], 3)
    expect("arrows", found["arrows"], 2)  # edge to manager, and one of match and load
    expect("folder circles", found["folder circles"], 0)
    expect("folder files", found["folder files"], 11)
    expect("mutexes", found["mutexes"], 2)
    expect("shapes", found["shapes"], 2)
    expect("types", found["types"], round(1000 * kinds / lines, 1))
    expect("lines", found["lines"], lines)
    expect("core", found["core"], lines - 11 - len(LONG.splitlines()))
    expect("core, disk", found["core, disk"], lines - 11)  # device.cc, device.h, part*, of_part.h, and what none includes
    expect("words", found["words"], 0)
    expect("comments of include", found["comments of include"], 50)
    if found["functions > 60"] is not None:
        expect("functions > 60", found["functions > 60"], 1)
        expect("functions > 80", found["functions > 80"], 0)
        listed = figures("--of", tree, "--list", "functions > 60").strip()
        expect("the long function", listed, "63 lines: lib/capi/long.cc:1: long_one")
    # Two shapes: their makers share no interface, or one does not name the other.
    write(tree, "tools/figures_shapes.tsv", MATCH + LOAD + "\tlib/base/a.h\n")
    expect("shapes without an interface", counts(tree)["shapes"], None)
    write(tree, "tools/figures_shapes.tsv", MATCH + LOAD + "\n")
    expect("shapes of which the second does not name the first", counts(tree)["shapes"], None)
    write(tree, "tools/figures_shapes.tsv", MATCH + "Load\n")
    expect("a row without its files", counts(tree)["shapes"], None)
    write(tree, "tools/figures_shapes.tsv", FILES["tools/figures_shapes.tsv"])
    # Folders of the manager in a circle, a comment without a subject, and shapes that are gone.
    write(tree, "lib/manager/host/a.h", '#include "manager/edge/b.h"\n')
    write(tree, "lib/manager/edge/b.h", "// Those.\n")
    write(tree, "lib/manager/edge/b.cc", '#include "manager/edge/b.h"\n#include "manager/host/c.h"\n')
    write(tree, "lib/manager/host/c.h", "\n")
    write(tree, "lib/manager/match.h", "struct Matches {};\n")
    found = counts(tree)
    expect("folder circles", found["folder circles"], 1)
    expect("words", found["words"], 1)
    expect("shapes that are gone", found["shapes"], None)
    figures("--of", tree, "--check", status=1)
    # Another project.
    row = figures("--tree", tree, "--row", "tiny", "abc", "lib/base").rstrip("\n").split("\t")
    expect("the row of a project", row[:5] + [row[17]], ["tiny", "abc", "lib/base", "2", "5", "1"])

# The lists in the repository fit this tree, and the table of other projects is whole.
this = json.loads(figures("--json"))
for row in this["figures"]:
    if row["value"] is None and not row["name"].startswith("functions"):
        failed.append(f"{row['name']} cannot be counted in this tree: " + figures("--list", row["name"]))
for row in this["models"]:
    if not all(row[column] for column in ("repository", "commit", "lines", "source")):
        failed.append(f"tools/figures_models.tsv: {row}")
print("\n".join(f"FAILED: {line}" for line in failed) or "all counts are right")
sys.exit(1 if failed else 0)
