/* The MPI program of the pages: every process writes the blocks of its rank into one file, collectively, and exits with 1
 * when that fails. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  enum { BLOCK = 64 << 10, BLOCKS = 4 };
  int rank, ranks, failed = 0;
  MPI_File file;
  char *block = malloc(BLOCK);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  memset(block, 'a' + rank % 26, BLOCK);
  if (argc != 2 || MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file))
    MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < BLOCKS; i++) {
    MPI_Offset at = ((MPI_Offset)i * ranks + rank) * BLOCK;
    failed |= MPI_File_write_at_all(file, at, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS;
  }
  failed |= MPI_File_close(&file) != MPI_SUCCESS;
  MPI_Finalize();
  return failed;
}
