"""Prints the licences of all crates that are linked into what is packaged, and their texts from the sources.

licences.py TARGET PACKAGE...: in the workspace.
"""

import json
import pathlib
import subprocess
import sys


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target, packages):
    """Names and versions of the crates that are in the binaries: not those of tests and of build scripts."""
    options = [word for package in packages for word in ("-p", package)]
    lines = cargo("tree", "--locked", "--target", target, *options, "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    return {tuple(line.split()[:2]) for line in lines.splitlines() if line}


def texts(directory):
    names = ("licen", "copying", "notice", "unlicense", "copyright")
    return sorted(it for it in directory.iterdir() if it.is_file() and it.name.lower().startswith(names))


def main():
    target, packages = sys.argv[1], sys.argv[2:]
    wanted = linked(target, packages)
    crates = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", target))["packages"]
    found = [it for it in crates if (it["name"], "v" + it["version"]) in wanted and it["source"]]
    if not found:
        sys.exit("no crate of a registry is linked: that cannot be")
    print("Hayase is linked with the crates below, with Rust's standard library (MIT or Apache-2.0, The Rust Project\n"
          "Developers) and with LLVM's libunwind and compiler-rt (Apache-2.0 WITH LLVM-exception). Each keeps its licence.\n")
    without = []
    crates_of = {}  # Most crates have the same text of the Apache licence: each text is printed once.
    for crate in sorted(found, key=lambda it: (it["name"], it["version"])):
        name = f"{crate['name']} {crate['version']}"
        print(f"{name}: {crate['license']}")
        files = texts(pathlib.Path(crate["manifest_path"]).parent)
        if not files and not crate["license"]:
            sys.exit(f"{name} names no licence and has no text of one")
        if not files:
            without.append(f"{name}: {crate['license']}")
        for file in files:
            crates_of.setdefault(file.read_text(errors="replace").strip(), []).append(f"{name} ({file.name})")
    if without:
        print("\nThe sources of these crates have no text of their licence, only its SPDX name:\n\n" + "\n".join(without))
    for text, names in crates_of.items():
        print("\n" + "=" * 100 + "\n" + "\n".join(names) + "\n\n" + text)


main()
