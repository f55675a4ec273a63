/* PnetCDF: variables with and without a record dimension, by collective, independent and pending calls.
 *
 *   grids_pnetcdf FILE
 *
 * Reads back what it wrote, and what others wrote; prints `WRONG` lines and fails when something differs.
 */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 12, COLUMNS = 30, STEPS = 4 };

static int rank, size, wrong;
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), wrong = 1;
}
static void must(int code, const char *what) { check(code == NC_NOERR, what); }

static int grid[ROWS][COLUMNS];
static void fill(int step, int of) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) grid[i][j] = ((step * 100 + of) * ROWS + i) * COLUMNS + j;
}
static int holds(int step, int of) {
  int found[ROWS][COLUMNS];
  memcpy(found, grid, sizeof grid);
  fill(step, of);
  return memcmp(found, grid, sizeof grid) == 0;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2) return 2;
  int file, dims[3], fixed, growing, pending, requests[2], codes[2];
  must(ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file), "creating");
  must(ncmpi_def_dim(file, "time", NC_UNLIMITED, &dims[0]), "a dimension");
  must(ncmpi_def_dim(file, "row", ROWS, &dims[1]), "a dimension");
  must(ncmpi_def_dim(file, "column", (MPI_Offset)COLUMNS * size, &dims[2]), "a dimension");
  must(ncmpi_def_var(file, "fixed", NC_INT, 2, dims + 1, &fixed), "a variable");
  must(ncmpi_def_var(file, "growing", NC_INT, 3, dims, &growing), "a variable");
  must(ncmpi_def_var(file, "pending", NC_INT, 3, dims, &pending), "a variable");
  must(ncmpi_put_att_text(file, NC_GLOBAL, "title", 5, "grids"), "an attribute");
  must(ncmpi_enddef(file), "the end of definitions");
  MPI_Offset start[3] = {0, 0, (MPI_Offset)rank * COLUMNS}, count[3] = {1, ROWS, COLUMNS};
  fill(99, rank);
  must(ncmpi_begin_indep_data(file), "independent calls");
  must(ncmpi_put_vara_int(file, fixed, start + 1, count + 1, &grid[0][0]), "an independent write");
  must(ncmpi_end_indep_data(file), "the end of independent calls");
  static int kept[2][ROWS][COLUMNS];
  for (int step = 0; step < STEPS; step++) {
    start[0] = step;
    fill(step, rank);
    must(ncmpi_put_vara_int_all(file, growing, start, count, &grid[0][0]), "a collective write");
    memcpy(kept[step % 2], grid, sizeof grid);
    must(ncmpi_iput_vara_int(file, pending, start, count, &kept[step % 2][0][0], &requests[step % 2]), "a pending write");
    if (step % 2) must(ncmpi_wait_all(file, 2, requests, codes), "waiting");
  }
  must(ncmpi_close(file), "closing");
  must(ncmpi_open(MPI_COMM_WORLD, argv[1], NC_NOWRITE, MPI_INFO_NULL, &file), "opening again");
  int next = (rank + 1) % size;
  start[2] = (MPI_Offset)next * COLUMNS;
  for (int step = STEPS - 1; step >= 0; step--) {
    start[0] = step;
    must(ncmpi_get_vara_int_all(file, growing, start, count, &grid[0][0]), "a collective read");
    check(holds(step, next), "what another process wrote");
    must(ncmpi_get_vara_int_all(file, pending, start, count, &grid[0][0]), "a collective read");
    check(holds(step, next), "what another process wrote, pending");
  }
  must(ncmpi_get_vara_int_all(file, fixed, start + 1, count + 1, &grid[0][0]), "a read");
  check(holds(99, next), "what another process wrote by itself");
  must(ncmpi_close(file), "closing again");
  int any;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
