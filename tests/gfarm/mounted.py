"""What programs may rely on below mounts of one Gfarm on several nodes.

    mounted.py names MNT            names, attributes and errors of one mount, beside those of a local directory
    mounted.py coherence MNT MNT    a close on one node is seen by the next open on the other
    mounted.py writers MNT MNT      several descriptors, mappings and files without a name
    mounted.py held FILE FILE       a reader keeps a file open (the second) while it is written elsewhere (the first)
    mounted.py crowd FILE FILE      many of one node read, look, open (the second) while it grows elsewhere (the first)
    mounted.py inherited FILE FILE  processes that use one open of a file whose bytes lie elsewhere, as two mounts show it
"""

import errno
import fcntl
import mmap
import os
import random
import stat
import sys
import tempfile
import time


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")


def refused(what, number, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError as error:
        expect(f"errno of {what}", errno.errorcode.get(error.errno), errno.errorcode[number])
        return
    sys.exit(f"{what}: it was not refused")


def write(path, data, flags=os.O_CREAT | os.O_TRUNC):
    file = os.open(path, os.O_WRONLY | flags, 0o644)
    while data:
        data = data[os.write(file, data):]
    os.close(file)


def read(path):
    with open(path, "rb", buffering=0) as file:
        pieces = []
        while piece := file.read(1 << 20):
            pieces.append(piece)
        return b"".join(pieces)


def names_below(root):
    """The same steps anywhere: what they answered."""
    os.chdir(root)
    told = []
    os.mkdir("d", 0o750)
    told.append(oct(os.stat("d").st_mode))
    refused("mkdir of what is there", errno.EEXIST, os.mkdir, "d")
    write("d/f", b"x" * 1000)
    found = os.stat("d/f")
    told.append((oct(found.st_mode), found.st_size, found.st_nlink, found.st_uid == os.geteuid()))
    refused("open of nothing", errno.ENOENT, os.open, "d/none", os.O_RDONLY)
    refused("open through a file", errno.ENOTDIR, os.open, "d/f/x", os.O_RDONLY)
    refused("an exclusive create of what is there", errno.EEXIST, os.open, "d/f", os.O_CREAT | os.O_EXCL)
    refused("writing a directory", errno.EISDIR, os.open, "d", os.O_WRONLY)
    refused("rmdir of a full directory", errno.ENOTEMPTY, os.rmdir, "d")
    refused("rmdir of a file", errno.ENOTDIR, os.rmdir, "d/f")
    refused("unlink of a directory", errno.EISDIR, os.unlink, "d")
    refused("a long name", errno.ENAMETOOLONG, os.mkdir, "n" * 256)
    os.symlink("d/f", "link")
    told.append((os.readlink("link"), len(read("link")), stat.S_ISLNK(os.lstat("link").st_mode)))
    refused("readlink of a file", errno.EINVAL, os.readlink, "d/f")
    os.link("d/f", "d/second")
    told.append((os.stat("d/f").st_nlink, os.stat("d/f").st_ino == os.stat("d/second").st_ino))
    os.rename("d/second", "third")
    told.append((sorted(os.listdir(".")), sorted(os.listdir("d"))))
    os.unlink("third")
    told.append(os.stat("d/f").st_nlink)
    write("other", b"other")
    os.rename("other", "d/f")
    told.append(read("d/f"))
    os.mkdir("e")
    refused("a directory over a file", errno.ENOTDIR, os.rename, "e", "d/f")
    refused("a file over a directory", errno.EISDIR, os.rename, "d/f", "e")
    os.rename("d", "e")
    told.append(read("e/f"))
    refused("a directory into itself", errno.EINVAL, os.rename, "e", "e/in")
    os.chmod("e/f", 0o604)
    os.utime("e/f", ns=(1_500_000_000_123_456_789, 1_600_000_000_987_654_321))
    found = os.stat("e/f")
    told.append((oct(found.st_mode), found.st_mtime_ns))
    with open("e/f", "r+b") as file:
        file.write(b"new")
        file.flush()
        os.utime(file.fileno(), ns=(1, 1_400_000_000_000_000_001))
    told.append((read("e/f"), os.stat("e/f").st_mtime_ns))
    os.truncate("e/f", 2)
    told.append((read("e/f"), os.stat("e/f").st_size))
    os.truncate("e/f", 100_000)
    told.append((read("e/f") == b"ne" + bytes(99_998), os.stat("e/f").st_size))
    write("e/f", b"end", os.O_APPEND)
    told.append(os.stat("e/f").st_size)
    write("e/f", b"short")
    told.append(read("e/f"))
    os.setxattr("e/f", "user.one", b"\0value")
    told.append((os.getxattr("e/f", "user.one"), "user.one" in os.listxattr("e/f")))
    refused("an attribute that is there", errno.EEXIST, os.setxattr, "e/f", "user.one", b"", os.XATTR_CREATE)
    refused("no such attribute", errno.ENODATA, os.getxattr, "e/f", "user.two")
    refused("no attribute to replace", errno.ENODATA, os.setxattr, "e/f", "user.two", b"", os.XATTR_REPLACE)
    os.removexattr("e/f", "user.one")
    refused("an attribute that was", errno.ENODATA, os.getxattr, "e/f", "user.one")
    many = {f"name-{number}" for number in range(700)}
    os.mkdir("many")
    for name in many:
        os.close(os.open(f"many/{name}", os.O_CREAT | os.O_WRONLY))
    told.append(set(os.listdir("many")) == many)
    told.append(sum(entry.stat().st_size for entry in os.scandir("many")))
    for name in many:
        os.unlink(f"many/{name}")
    os.rmdir("many")
    os.unlink("link")
    os.unlink("e/f")
    os.rmdir("e")
    told.append(os.listdir("."))
    return told


def names(mount):
    place = tempfile.mkdtemp(dir=mount)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as local:
        wanted = names_below(local)
        found = names_below(place)
        os.chdir("/")
    for number, (here, there) in enumerate(zip(found, wanted, strict=True)):
        expect(f"answer {number}", here, there)
    room = os.statvfs(mount)
    expect("room", room.f_blocks >= room.f_bavail > 0, True)
    # What Gfarm does not have is refused, not done wrongly.
    write(f"{place}/f", b"x")
    with open(f"{place}/f", "r+b") as file:
        refused("a lock", errno.EOPNOTSUPP, fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    refused("a pipe", errno.EPERM, os.mkfifo, f"{place}/pipe")
    os.unlink(f"{place}/f")
    os.rmdir(place)


def coherence(one, two):
    random.seed(5)
    mounts = [one, two]
    for mount in mounts:
        expect("the same directory", os.listdir(mount), os.listdir(one))
    os.mkdir(f"{one}/c")
    for turn in range(150):
        here, there = (f"{mount}/c/f{turn % 7}" for mount in random.sample(mounts, 2))
        data = random.randbytes(random.choice([1, 100, 4096, 70_000, 1_500_000]))
        how = random.choice(["new", "same size", "append", "replace", "remove"])
        before = read(there) if os.path.exists(there) else None
        if how == "remove" and before is not None:
            os.unlink(here)
            refused(f"turn {turn}: open of a removed file", errno.ENOENT, os.open, there, os.O_RDONLY)
            continue
        if how == "append" and before is not None:
            write(here, data, os.O_APPEND)
            data = before + data
        elif how == "same size" and before is not None:
            data = random.randbytes(len(before))
            write(here, data, 0)
        elif how == "replace":
            write(f"{here}.new", data)
            os.rename(f"{here}.new", here)
        else:
            write(here, data)
        with open(there, "rb", buffering=0) as file:
            expect(f"turn {turn}: size after {how}", os.fstat(file.fileno()).st_size, len(data))
            found = file.read(len(data) + 1)
            while piece := file.read(1 << 20):
                found += piece
        if found != data:
            sys.exit(f"turn {turn}: {how} of {len(data)} bytes: other bytes came, {len(found)}")
    # What is only looked at follows within the second that a kernel keeps attributes.
    write(f"{one}/c/looked", b"1")
    os.stat(f"{two}/c/looked")
    write(f"{one}/c/looked", b"22")
    end = time.monotonic() + 20
    while os.stat(f"{two}/c/looked").st_size != 2:
        if time.monotonic() > end:
            sys.exit("stat still shows the old size")
        time.sleep(0.1)


def writers(one, two):
    os.mkdir(f"{one}/w")
    here, there = f"{one}/w/f", f"{two}/w/f"
    # Processes that write through one open, one after the other, as `(a; b) > f` does.
    file = os.open(here, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for number in range(20):
        again = os.dup(file)
        os.write(again, b"%06d\n" % number)
        os.close(again)
        expect("lines after a close", read(there), b"".join(b"%06d\n" % n for n in range(number + 1)))
    os.close(file)
    # Two opens of one file at once.
    first, second = (os.open(here, os.O_RDWR) for _ in range(2))
    os.pwrite(first, b"A" * 5000, 0)
    os.pwrite(second, b"B" * 5000, 5000)
    expect("through the other open", os.pread(first, 5000, 5000), b"B" * 5000)
    os.close(first)
    os.pwrite(second, b"C" * 5000, 10_000)
    os.close(second)
    expect("two opens", read(there), b"A" * 5000 + b"B" * 5000 + b"C" * 5000)
    # A mapping that is written after its descriptor was closed.
    file = os.open(here, os.O_RDWR)
    mapped = mmap.mmap(file, 15_000)
    os.close(file)
    mapped[100:105] = b"mmap!"
    mapped.flush()
    mapped.close()
    end = time.monotonic() + 20
    while read(there)[100:105] != b"mmap!":
        if time.monotonic() > end:
            sys.exit("what was written through a mapping does not come")
        time.sleep(0.05)
    # A file without a name lives until its last close, where its bytes are here and where they are not.
    for path, other in ((here, there), (there, here)):
        write(here, b"kept" * 1000)
        file = os.open(path, os.O_RDWR)
        os.close(os.dup(file))
        os.unlink(path)
        refused("a removed name", errno.ENOENT, os.open, other, os.O_RDONLY)
        os.pwrite(file, b"more", 4000)
        os.close(os.dup(file))
        expect("without a name", os.pread(file, 5000, 0), b"kept" * 1000 + b"more")
        expect("names left", os.fstat(file).st_nlink, 0)
        os.fchmod(file, 0o604)
        os.utime(file, ns=(1, 1_400_000_000_000_000_001))
        found = os.fstat(file)
        expect("set without a name", (oct(found.st_mode), found.st_mtime_ns), ("0o100604", 1_400_000_000_000_000_001))
        os.close(file)
    # The last name that this host knows of is removed, and another host made one more.
    file = os.open(here, os.O_CREAT | os.O_RDWR)
    os.link(there, f"{there}.link")
    os.unlink(here)
    expect("names of a file that another host linked", os.stat(f"{here}.link").st_nlink, 1)
    os.write(file, b"by its other name")
    os.close(os.dup(file))
    expect("after the close of one descriptor", read(f"{there}.link"), b"by its other name")
    os.close(file)
    # A rename under an open file.
    file = os.open(here, os.O_CREAT | os.O_RDWR)
    os.write(file, b"before")
    os.rename(here, f"{here}.moved")
    os.write(file, b", after")
    os.close(file)
    expect("renamed while it was written", read(f"{there}.moved"), b"before, after")


def inherited(here, there):
    for flags in (0, os.O_DIRECT):  # with the kernel's pages, and each read a call
        share(here, there, flags)


def share(here, there, flags):
    # As `(a & b) > f`: each close of a process tells the metadata server, while others use the same open.
    processes, block, most = 4, 8192, 120
    size = processes * most * block
    file = os.open(here, os.O_RDWR | flags)
    os.ftruncate(file, 0)
    os.ftruncate(file, size)

    def use(number):
        for turn in range(most // (number + 1)):
            place = (number * most + turn) * block
            os.pwrite(file, bytes([1 + number]) * block, place)
            os.close(os.dup(file))
            found = set(os.pread(file, block, place))
            if found != {1 + number}:
                sys.exit(f"block {turn} is not what was written, flags {flags:#x}: {sorted(found)}")
            os.pread(file, size, 0)
            if turn % 8 == number:
                os.ftruncate(file, size)
                os.fsync(file)
        os.close(file)

    children = [start(use, number) for number in range(processes)]
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    os.close(file)
    expect("processes that failed", len(failed), 0)
    blocks = [(n, turn < most // (n + 1)) for n in range(processes) for turn in range(most)]
    wanted = b"".join(bytes([1 + n if is_written else 0]) * block for n, is_written in blocks)
    if read(there) != wanted:
        sys.exit("other bytes came than those that were written")


def held(there, here):
    size = len(first := read(here))
    file = os.open(here, os.O_RDONLY)
    expect("at the open", os.pread(file, size + 1, 0), first)
    # It grows in the middle of a page.
    write(there, b"grown" * 10, os.O_APPEND)
    follow(file, here, first + b"grown" * 10)
    with open(file, "rb", buffering=0, closefd=False) as open_file, \
            mmap.mmap(file, size + 50, prot=mmap.PROT_READ) as mapped:
        expect("mapped", mapped[:], first + b"grown" * 10)
        open_file.seek(size)
        expect("from where it was", open_file.read(100), b"grown" * 10)
    # Written anew; who opens it sees that, whoever else has it open.
    for turn in range(6):
        data = b"%d" % turn * (size - 700 * turn)
        write(there, data)
        if (found := read(here)) != data:
            sys.exit(f"opened anew, turn {turn}: {len(found)} bytes that begin with {found[:20]!r}")
        follow(file, here, data)
    # One who writes here is seen by who reads here.
    writer = os.open(here, os.O_WRONLY)
    os.pwrite(writer, b"written here", 5000)
    again = os.open(here, os.O_RDONLY | os.O_DIRECT)
    for reader in (file, again):
        expect("written on this node", os.pread(reader, 12, 5000), b"written here")
    os.close(again)
    os.close(writer)
    data = data[:5000] + b"written here" + data[5012:]
    follow(file, here, data)
    write(there, data + b"end")
    follow(file, here, data + b"end")
    os.close(file)


def crowd(there, here):
    write(there, b"grown" * 1000)
    most = 200 * 5000
    wanted = b"grown" * (most // 5)

    def hold(file):
        found = os.pread(file, most, 0)
        if not wanted.startswith(found):
            sys.exit(f"{len(found)} bytes, but not those that were written: zeros from {found.find(0)}")
        return len(found)

    def look(file):
        return os.stat(here).st_size

    def write_nothing(file):
        os.close(os.open(here, os.O_RDWR))
        return os.fstat(file).st_size

    def use(what):
        file = os.open(here, os.O_RDONLY)
        while what(file) < most:
            pass
        os.close(file)

    children = [start(use, what) for what in (hold, hold, hold, look, look, write_nothing)]
    for _ in range(199):
        write(there, b"grown" * 1000, os.O_APPEND)
    expect("processes that failed", sum(os.waitpid(child, 0)[1] != 0 for child in children), 0)


def start(work, *arguments):
    if (child := os.fork()) != 0:
        return child
    try:
        work(*arguments)
    except BaseException as error:
        print(f"{arguments}: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


def follow(file, path, wanted):
    """Whatever is told of size and bytes meanwhile belongs together; then it is what is wanted."""
    end = time.monotonic() + 30
    while (found := os.pread(file, len(wanted) + 1, 0)) != wanted:
        if len(found) == len(wanted) or b"\0" in found:
            sys.exit(f"{len(found)} bytes, but not those that were written: it ends with {found[-60:]!r}")
        if time.monotonic() > end:
            sys.exit(f"{len(found)} bytes of {len(wanted)} come")
        os.stat(path)
        time.sleep(0.05)
    expect("size", os.fstat(file).st_size, len(wanted))


if __name__ == "__main__":
    {"names": names, "coherence": coherence, "writers": writers, "held": held, "crowd": crowd, "inherited": inherited}[sys.argv[1]](*sys.argv[2:])
