/* Blocks of all processes in turn, through views and by explicit offsets, read back by other processes.
 *
 *   interleaved FILE
 *
 * Needs no locks of the file system. The bytes of FILE depend on the number of processes alone. Prints `WRONG`
 * lines and fails when something differs.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 47008 /* BT-IO's */
#define BLOCKS 24

static int rank, size, wrong;
static char mine[BLOCKS * BLOCK], other[BLOCKS * BLOCK];
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), wrong = 1;
}
static void fill(char *bytes, int owner) {
  for (int i = 0; i < BLOCKS * BLOCK; i++) bytes[i] = (char)(i * 31 + i / 256 + owner * 7);
}
/* Block `rank` of every `size`. */
static void view(MPI_File fh, MPI_Offset start, int owner) {
  MPI_Datatype type;
  MPI_Type_vector(BLOCKS, BLOCK, BLOCK * size, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(fh, start + (MPI_Offset)owner * BLOCK, MPI_BYTE, type, "native", MPI_INFO_NULL);
  MPI_Type_free(&type);
}

int main(int argc, char **argv) {
  MPI_File fh;
  MPI_Status status;
  MPI_Offset part = (MPI_Offset)BLOCKS * BLOCK, all, end;
  int count, any;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2) return 2;
  all = part * size;
  fill(mine, rank);
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &fh)) return 2;
  MPI_File_set_errhandler(fh, MPI_ERRORS_ARE_FATAL);
  view(fh, 0, rank);
  MPI_File_write_all(fh, mine, BLOCKS * BLOCK, MPI_BYTE, &status);
  MPI_Get_count(&status, MPI_BYTE, &count);
  check(count == part, "count of a collective write");
  MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  for (int block = 0; block < BLOCKS; block++)
    MPI_File_write_at(fh, all + ((MPI_Offset)block * size + rank) * BLOCK, mine + block * BLOCK, BLOCK, MPI_BYTE, &status);
  MPI_File_sync(fh);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(fh);
  MPI_File_get_size(fh, &end);
  check(end == 2 * all, "the size behind a sync");
  view(fh, all, (rank + 1) % size);
  fill(mine, (rank + 1) % size);
  MPI_File_read_all(fh, other, BLOCKS * BLOCK, MPI_BYTE, &status);
  check(!memcmp(mine, other, part), "what another process wrote, behind a sync");
  MPI_File_close(&fh);

  MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &fh);
  MPI_File_get_size(fh, &end);
  check(end == 2 * all, "the size at the second opening");
  view(fh, 0, (rank + 2) % size);
  fill(mine, (rank + 2) % size);
  memset(other, 0, sizeof other);
  MPI_File_read(fh, other, BLOCKS * BLOCK, MPI_BYTE, &status);
  check(!memcmp(mine, other, part), "what a third process wrote, behind a close");
  MPI_File_close(&fh);
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
