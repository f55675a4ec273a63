"""h5py on parallel HDF5: data sets written by all processes, collectively and not, whole and in chunks.

    waves_h5py.py FILE

Reads back what others wrote; prints WRONG lines and fails when something differs.
"""
import sys

import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
ROWS, COLUMNS = 17, 40
wrong = 0


def wave(of):
    return numpy.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS) * 3 + of * 1000


def check(ok, what):
    global wrong
    if not ok:
        print(f"WRONG on rank {rank}: {what}", flush=True)
        wrong = 1


with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    whole = file.create_dataset("whole", (ROWS * size, COLUMNS), dtype="f8")
    columns = file.create_dataset("columns", (ROWS, COLUMNS * size), dtype="f8")
    chunks = file.create_dataset("chunks", (ROWS * size, COLUMNS), dtype="f8", chunks=(8, 16))
    single = file.create_dataset("single", (ROWS * size, COLUMNS), dtype="f4")
    file.attrs["steps"] = 3
    mine = slice(rank * ROWS, (rank + 1) * ROWS)
    whole[mine] = wave(rank)
    with columns.collective:
        columns[:, rank::size] = wave(rank)
    with chunks.collective:
        chunks[mine] = wave(rank)
    single[mine] = wave(rank)  # converted to another type

with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    other = (rank + 1) % size
    theirs = slice(other * ROWS, (other + 1) * ROWS)
    for name in ("whole", "chunks", "single"):
        check((file[name][theirs] == wave(other)).all(), name)
    with file["columns"].collective:
        check((file["columns"][:, other::size] == wave(other)).all(), "columns")
    check(file.attrs["steps"] == 3, "an attribute")

sys.exit(comm.allreduce(wrong, MPI.MAX))
