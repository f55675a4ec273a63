#!/usr/bin/env python3
"""What libgfarm takes to make files without any mount: bare.py DIR FILES

Looks each name up, makes the file and closes it, one call after the other, as a mount has to; no file gets a place at a
file server. Prints seconds. DIR is made below the root of the Gfarm.
"""
import ctypes, sys, time

library = ctypes.CDLL("libgfarm.so.1")
directory, count = sys.argv[1].encode(), int(sys.argv[2])


def call(name, *arguments, answers=(0,)):
    error = getattr(library, name)(*arguments)
    if error not in answers:
        sys.exit(f"{name}: error {error} of libgfarm")


NO_SUCH_FILE = 2
call("gfarm_initialize", None, None)
call("gfs_mkdir", directory, ctypes.c_uint(0o755))
status, file = ctypes.create_string_buffer(1024), ctypes.c_void_p()
number, generation = ctypes.c_uint64(), ctypes.c_uint64()
WRITE_ONLY, MODE = ctypes.c_int(1), ctypes.c_uint(0o644)
begin = time.monotonic()
for each in range(count):
    path = directory + b"/f%d" % each
    call("gfs_lstat", path, status, answers=(NO_SUCH_FILE,))
    call("gfs_pio_create_igen", path, WRITE_ONLY, MODE, ctypes.byref(file), ctypes.byref(number), ctypes.byref(generation))
    call("gfs_pio_close", file)
print(time.monotonic() - begin)
