/* Nested sub-arrays, as BT-IO writes them, and what else changes a file: collective writes through views
 * with gaps in memory, explicit offsets, shared and ordered pointers, sizes, a reopening by fewer
 * processes. The bytes of FILE depend on the number of processes alone.
 *
 *   nested FILE
 *
 * Every process checks what it reads; prints `WRONG` lines and fails when something differs.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 3 /* per process */
#define SIDE 6
#define STEPS 4

static int rank, size, wrong;
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), wrong = 1;
}

static double value(int step, int cell, int i, int j) {
  return rank * 1e6 + step * 1e4 + cell * 1e3 + i * 10 + j;
}

/* Each process has CELLS squares of a (CELLS * SIDE) x (size * SIDE) array, one below the other, shifted. */
static MPI_Datatype cells(void) {
  MPI_Datatype squares[CELLS], all;
  int blocks[CELLS];
  MPI_Aint places[CELLS];
  for (int cell = 0; cell < CELLS; cell++) {
    int sizes[2] = {CELLS * SIDE, size * SIDE}, sub[2] = {SIDE, SIDE};
    int starts[2] = {cell * SIDE, (rank + cell) % size * SIDE};
    MPI_Type_create_subarray(2, sizes, sub, starts, MPI_ORDER_C, MPI_DOUBLE, &squares[cell]);
    blocks[cell] = 1, places[cell] = 0;
  }
  MPI_Type_create_struct(CELLS, blocks, places, squares, &all);
  MPI_Type_commit(&all);
  for (int cell = 0; cell < CELLS; cell++) MPI_Type_free(&squares[cell]);
  return all;
}

/* Of a square with a border of one element on each side. */
static MPI_Datatype insides(void) {
  MPI_Datatype inside, all;
  int sizes[3] = {CELLS, SIDE + 2, SIDE + 2}, sub[3] = {CELLS, SIDE, SIDE}, starts[3] = {0, 1, 1};
  MPI_Type_create_subarray(3, sizes, sub, starts, MPI_ORDER_C, MPI_DOUBLE, &inside);
  MPI_Type_commit(&inside);
  all = inside;
  return all;
}

static double data[CELLS][SIDE + 2][SIDE + 2];
static void fill(int step) {
  for (int c = 0; c < CELLS; c++)
    for (int i = 0; i < SIDE + 2; i++)
      for (int j = 0; j < SIDE + 2; j++) {
        int inside = i && j && i <= SIDE && j <= SIDE;
        data[c][i][j] = inside ? value(step, c, i, j) : -1;
      }
}
static int holds(int step) {
  for (int c = 0; c < CELLS; c++)
    for (int i = 1; i <= SIDE; i++)
      for (int j = 1; j <= SIDE; j++)
        if (data[c][i][j] != value(step, c, i, j)) return 0;
  return data[0][0][0] == -1;
}

#define MESH_BYTES ((MPI_Offset)CELLS *SIDE *size *SIDE * 8)

static void mesh(MPI_File fh) {
  MPI_Datatype view = cells(), memory = insides();
  MPI_Status status;
  int count, part = CELLS * SIDE * SIDE;
  MPI_File_set_view(fh, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL);
  for (int step = 0; step < STEPS; step++) {
    fill(step);
    MPI_File_write_at_all(fh, (MPI_Offset)step * part, data, 1, memory, &status);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    check(count == part, "count of a collective write");
  }
  for (int step = STEPS - 1; step >= 0; step--) {
    for (int c = 0; c < CELLS; c++) memset(data[c], 0, sizeof data[c]);
    data[0][0][0] = -1;
    MPI_File_read_at_all(fh, (MPI_Offset)step * part, data, 1, memory, &status);
    check(holds(step), "a step that was read back");
  }
  MPI_Type_free(&view);
  MPI_Type_free(&memory);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2) return 2;
  MPI_File fh;
  MPI_Status status;
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MPI_Offset where, total = STEPS * MESH_BYTES;
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &fh)) return 2;
  MPI_File_set_errhandler(fh, MPI_ERRORS_ARE_FATAL);
  mesh(fh);
  MPI_File_sync(fh);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(fh);

  /* What others wrote, through another view: a block of rows. */
  MPI_File_set_view(fh, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
  double row[SIDE];
  int next = (rank + 1) % size;
  MPI_File_read_at(fh, (MPI_Offset)next * SIDE, row, SIDE, MPI_DOUBLE, &status);
  check(row[0] == next * 1e6 + 11, "the first row of another process");
  MPI_File_get_size(fh, &where);
  check(where == total, "the size behind the mesh");

  /* Explicit offsets with a stride, nonblocking, behind the mesh; then pointers that all share. */
  MPI_File_set_view(fh, total, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  int mine[16], ordered = rank * 7;
  for (int i = 0; i < 16; i++) mine[i] = rank * 100 + i;
  MPI_File_iwrite_at(fh, rank * 8, mine, 8, MPI_INT, &requests[0]);
  MPI_File_iwrite_at(fh, (size + rank) * 8, mine + 8, 8, MPI_INT, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  MPI_File_seek_shared(fh, size * 16, MPI_SEEK_SET);
  MPI_File_write_ordered(fh, &ordered, 1, MPI_INT, &status);
  MPI_File_write_ordered(fh, &ordered, 1, MPI_INT, &status);
  int same = 42;
  MPI_File_write_shared(fh, &same, 1, MPI_INT, &status);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_get_position_shared(fh, &where);
  check(where == size * 16 + 3 * size, "the shared pointer");
  MPI_File_seek(fh, 0, MPI_SEEK_END);
  MPI_File_get_position(fh, &where);
  MPI_File_get_byte_offset(fh, where, &where);
  check(where <= total + size * 19 * 4 && where > total, "the end as this process knows it");
  MPI_File_write_all_begin(fh, mine, 0, MPI_INT);
  MPI_File_write_all_end(fh, mine, &status);
  MPI_File_close(&fh);

  /* Half of the processes, another view, cut and appended. */
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank < (size + 1) / 2, rank, &half);
  if (rank < (size + 1) / 2) {
    int rows = STEPS * CELLS * SIDE, few, at;
    MPI_Comm_size(half, &few);
    MPI_Comm_rank(half, &at);
    MPI_File_open(half, argv[1], MPI_MODE_RDWR | MPI_MODE_APPEND, MPI_INFO_NULL, &fh);
    MPI_File_get_size(fh, &where);
    check(where == total + size * 19 * 4, "the size at the second opening");
    for (int r = at; r < rows; r += few) {
      double first;
      MPI_File_read_at(fh, (MPI_Offset)r * size * SIDE * 8, &first, 1, MPI_DOUBLE, &status);
      int step = r / (CELLS * SIDE), cell = r / SIDE % CELLS, owner = (size * CELLS - cell) % size;
      check(first == owner * 1e6 + step * 1e4 + cell * 1e3 + (r % SIDE + 1) * 10 + 1, "a row");
    }
    MPI_Barrier(half);
    MPI_File_set_size(fh, total + 16);
    MPI_File_preallocate(fh, total + 1000);
    MPI_Barrier(half); /* on rank 0 alone Open MPI 4.1 goes on writing */
    int tail = 4711 + at;
    MPI_File_write_at(fh, total + 2000 + at * 4, &tail, 4, MPI_BYTE, &status);
    MPI_File_set_atomicity(fh, 1);
    int pair[2] = {at, at};
    MPI_File_write_at_all(fh, total + 3000, pair, at == 0 ? 2 : 0, MPI_INT, &status);
    MPI_Barrier(half);
    MPI_File_read_at_all(fh, total + 3000, pair, 2, MPI_INT, &status);
    check(pair[0] == 0 && pair[1] == 0, "what was written in atomic mode");
    MPI_File_set_atomicity(fh, 0);
    MPI_File_close(&fh);
  }
  int any;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
