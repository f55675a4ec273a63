/* Parallel HDF5: one file of several data sets, written by all, collectively and not, whole and in chunks.
 *
 *   cubes_hdf5 FILE
 *
 * Reads back what it wrote, and what others wrote; prints `WRONG` lines and fails when something differs.
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 24, COLUMNS = 60, STEPS = 3 };

static int rank, size, wrong;
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), wrong = 1;
}
static double value(int step, int row, int column) { return step * 1e6 + row * 1e3 + column + 0.5; }

/* The rows of one process, every `stride`-th; memory has a border of one element. */
static void cube(hid_t file, const char *name, int collective, hsize_t chunk) {
  hsize_t whole[3] = {STEPS, (hsize_t)ROWS * (hsize_t)size, COLUMNS}, chunks[3] = {1, chunk, COLUMNS / 2};
  hsize_t memory_whole[2] = {ROWS + 2, COLUMNS + 2}, memory_start[2] = {1, 1}, memory_count[2] = {ROWS, COLUMNS};
  hid_t space = H5Screate_simple(3, whole, NULL), memory = H5Screate_simple(2, memory_whole, NULL);
  hid_t made = H5Pcreate(H5P_DATASET_CREATE), moved = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_obj_track_times(made, 0);
  if (chunk) H5Pset_chunk(made, 3, chunks);
  H5Pset_dxpl_mpio(moved, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
  hid_t set = H5Dcreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  H5Sselect_hyperslab(memory, H5S_SELECT_SET, memory_start, NULL, memory_count, NULL);
  static double data[ROWS + 2][COLUMNS + 2];
  for (int step = 0; step < STEPS; step++) {
    hsize_t start[3] = {(hsize_t)step, (hsize_t)rank, 0}, stride[3] = {1, (hsize_t)size, 1}, count[3] = {1, ROWS, COLUMNS};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL);
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) data[i + 1][j + 1] = value(step, i * size + rank, j);
    check(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, moved, data) >= 0, "writing");
  }
  for (int step = 0; step < STEPS; step++) {
    hsize_t start[3] = {(hsize_t)step, (hsize_t)rank, 0}, stride[3] = {1, (hsize_t)size, 1}, count[3] = {1, ROWS, COLUMNS};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL);
    data[1][1] = data[ROWS][COLUMNS] = -1;
    check(H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, moved, data) >= 0, "reading");
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++)
        if (data[i + 1][j + 1] != value(step, i * size + rank, j)) {
          check(0, name);
          i = ROWS, j = COLUMNS;
        }
  }
  H5Pclose(made), H5Pclose(moved), H5Sclose(space), H5Sclose(memory), H5Dclose(set);
}

static hid_t open_all(const char *name, int creating) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS), made = H5Pcreate(H5P_FILE_CREATE), file;
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  H5Pset_obj_track_times(made, 0);
  file = creating ? H5Fcreate(name, H5F_ACC_TRUNC, made, access) : H5Fopen(name, H5F_ACC_RDONLY, access);
  H5Pclose(access), H5Pclose(made);
  return file;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2) return 2;
  hid_t file = open_all(argv[1], 1);
  check(file >= 0, "creating");
  cube(file, "/collective", 1, 0);
  cube(file, "/independent", 0, 0);
  cube(file, "/chunks", 1, 8);
  cube(file, "/own_chunks", 0, 8);
  H5Fclose(file);
  file = open_all(argv[1], 0);
  check(file >= 0, "opening again");
  hid_t set = H5Dopen2(file, "/chunks", H5P_DEFAULT);
  double *all = malloc(sizeof *all * STEPS * ROWS * (size_t)size * COLUMNS);
  check(set >= 0 && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0, "reading all");
  for (int n = 0; n < STEPS * ROWS * size * COLUMNS; n++)
    if (all[n] != value(n / (ROWS * size * COLUMNS), n / COLUMNS % (ROWS * size), n % COLUMNS)) {
      check(0, "what others wrote");
      break;
    }
  free(all);
  H5Dclose(set), H5Fclose(file);
  int any;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
