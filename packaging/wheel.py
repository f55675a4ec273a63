"""Packs an installed tree as a binary wheel: `pip install` gives the command, the libraries and the manual pages.

wheel.py TREE VERSION PLATFORM OUT: prints the name of the wheel in OUT. TREE has bin, lib and share, as they are below
/usr; each file keeps its place below the environment. There is no Python in it.
Source: the binary distribution format of PyPA (WHEEL 1.0).
"""

import base64
import hashlib
import os
import pathlib
import stat
import sys
import time
import zipfile

METADATA = """\
Metadata-Version: 2.4
Name: hayase
Version: {version}
Summary: A job's own file system on the disks of its nodes
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: LICENSES-crates
Requires-Python: >=3.6
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: hayase
Root-Is-Purelib: false
Tag: {tag}
"""


def members(tree, version, tag):
    """(name, mode, bytes) of each file: programs are scripts for pip, which makes them executable; the rest is data."""
    info, data = f"hayase-{version}.dist-info", f"hayase-{version}.data"
    for file in sorted(it for it in tree.rglob("*") if it.is_file()):
        place = file.relative_to(tree).as_posix()
        name = f"{data}/scripts/{place[4:]}" if place.startswith("bin/") else f"{data}/data/{place}"
        yield name, file.stat().st_mode, file.read_bytes()
    for name in ("LICENSE-APACHE", "LICENSE-MIT", "LICENSES-crates"):
        yield f"{info}/licenses/{name}", stat.S_IFREG | 0o644, (tree / "share/doc/hayase" / name).read_bytes()
    yield f"{info}/METADATA", stat.S_IFREG | 0o644, METADATA.format(version=version).encode()
    yield f"{info}/WHEEL", stat.S_IFREG | 0o644, WHEEL.format(tag=tag).encode()


def main():
    tree, version, platform, out = sys.argv[1:]
    tag = f"py3-none-{platform}"
    wheel = pathlib.Path(out) / f"hayase-{version}-{tag}.whl"
    moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    record = f"hayase-{version}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name, mode, content):
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)

        for name, mode, content in members(pathlib.Path(tree), version, tag):
            add(name, mode, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
        add(record, stat.S_IFREG | 0o644, ("".join(lines) + f"{record},,\n").encode())
    print(wheel.name)


main()
