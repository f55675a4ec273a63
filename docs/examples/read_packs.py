#!/usr/bin/env python3
"""Reads a set of packs written by hayase, with nothing but the standard library (not sealed ones).

    read_packs.py DIR            prints one line per file, checked: size, checksum, name
    read_packs.py DIR NAME       writes the bytes of one file to standard output
"""
import hashlib, pathlib, sys, urllib.parse

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def entries(directory):
    packs_directory = pathlib.Path(directory, ".hayase-packs")
    index = max(packs_directory.glob("index-*.txt")).read_bytes()
    lines, end = index[: index.rindex(b"\ne ") + 1], index.split(b"\n")[-2]
    assert end.split(b" ")[2].decode() == hashlib.sha256(lines).hexdigest(), "the index is damaged"
    packs = []
    for line in lines.decode().splitlines()[1:]:
        kind, *fields = line.split(" ")
        if kind == "p":
            packs.append(packs_directory / f"pack-{fields[0]}.tar")
        elif kind == "f":
            pack, offset, stored, size, crc, codec, mode, mtime, name = fields
            name = urllib.parse.unquote_to_bytes(name)
            path = pathlib.Path(directory, name.decode("utf-8", "surrogateescape")) if pack == "-" else packs[int(pack)]
            yield name, path, int(offset), int(stored), crc, codec


def read(path, offset, stored, crc, codec):
    with open(path, "rb") as pack:
        pack.seek(offset)
        data = pack.read(stored)
    if codec == "zstd":
        import subprocess
        data = subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
    assert f"{crc32c(data):08x}" == crc, "the entry is damaged"
    return data


for name, *place in entries(sys.argv[1]):
    if len(sys.argv) == 2:
        data = read(*place)
        print(len(data), place[3], name.decode("utf-8", "surrogateescape").encode("unicode_escape").decode())
    elif name == sys.argv[2].encode("utf-8", "surrogateescape"):
        sys.stdout.buffer.write(read(*place))
