/* What MPI promises besides the bytes: errors by class, modes, visibility, atomicity, two openings at once.
 *
 *   semantics FILE        (hints ask for a container, and for consistency=posix where it is tried)
 *
 * Prints `WRONG` lines and fails when something differs.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), wrong = 1;
}
static int class_of(int code) {
  int class = 0;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  return class;
}
static MPI_File open_as(MPI_Comm comm, const char *name, int amode, MPI_Info info) {
  MPI_File fh;
  if (MPI_File_open(comm, name, amode, info, &fh)) printf("WRONG: no open\n"), MPI_Abort(MPI_COMM_WORLD, 3);
  return fh;
}

/* MPICH 5 gives the ranks behind the first a code that means nothing to them (class MPI_ERR_OTHER), with
   an "INTERNAL ERROR" on stderr, now and then also without us: MPI_File_open of what can not be opened. */
static int opened_wrongly(int code, int class) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  if (class_of(code) == class) return 1;
  MPI_Get_library_version(version, &length);
  return rank > 0 && class_of(code) == MPI_ERR_OTHER && strstr(version, "MPICH Version:      5");
}

static int handled;
static void handler(MPI_File *fh, int *code, ...) {
  (void)fh;
  handled = class_of(*code);
}

static void errors(const char *name) {
  MPI_File fh;
  MPI_Status status;
  MPI_Errhandler own;
  int word = 7, amode, flag, count;
  int code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &fh);
  check(opened_wrongly(code, MPI_ERR_FILE_EXISTS), "exclusive creation of what exists");
  code = MPI_File_open(MPI_COMM_WORLD, "no/such/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &fh);
  check(opened_wrongly(code, MPI_ERR_NO_SUCH_FILE), "opening what does not exist");
  fh = open_as(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL);
  code = MPI_File_write_at(fh, 0, &word, 1, MPI_INT, &status);
  check(code != MPI_SUCCESS, "a write to a file opened for reading");
  code = MPI_File_set_size(fh, 3);
  check(code != MPI_SUCCESS, "a new size of a file opened for reading");
  MPI_File_get_amode(fh, &amode);
  check(amode == MPI_MODE_RDONLY, "the access mode");
  MPI_File_create_errhandler(handler, &own);
  MPI_File_set_errhandler(fh, own);
  handled = 0;
  code = MPI_File_read_at(fh, -5, &word, 1, MPI_INT, &status);
  check(class_of(code) == MPI_ERR_ARG && handled == MPI_ERR_ARG, "a negative offset, and the handler of the program");
  code = MPI_File_read_at(fh, 0, &word, -1, MPI_INT, &status);
  check(class_of(code) == MPI_ERR_COUNT, "a negative count");
  code = MPI_File_read_at(fh, 0, &word, 1, MPI_DATATYPE_NULL, &status);
  check(class_of(code) == MPI_ERR_TYPE, "the null datatype");
  MPI_Errhandler_free(&own);
  MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN);
  MPI_File_get_atomicity(fh, &flag);
  check(!flag, "atomicity at first");
  char bytes[8];
  code = MPI_File_read_at(fh, 1 << 20, bytes, 8, MPI_BYTE, &status);
  MPI_Get_count(&status, MPI_BYTE, &count);
  check(code == MPI_SUCCESS && count == 0, "a read behind the end");
  MPI_File_close(&fh);
  check(fh == MPI_FILE_NULL, "the handle after close");
}

/* Written, waited, read: no sync between. */
static void at_once(const char *name) {
  MPI_Info info;
  MPI_Status status;
  MPI_Info_create(&info);
  MPI_Info_set(info, "hayase_consistency", "posix");
  MPI_File fh = open_as(MPI_COMM_WORLD, name, MPI_MODE_RDWR, info);
  for (int round = 0; round < 5; round++) {
    int mine = rank * 100 + round, theirs, next = (rank + 1) % size;
    MPI_File_write_at(fh, (MPI_Offset)rank * 4, &mine, 1, MPI_INT, &status);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_at(fh, (MPI_Offset)next * 4, &theirs, 1, MPI_INT, &status);
    check(theirs == next * 100 + round, "what another process wrote, by consistency=posix");
    /* One overwrites what all wrote: the last one counts. */
    MPI_Barrier(MPI_COMM_WORLD);
    int zeros[64] = {0};
    if (rank == round % size) MPI_File_write_at(fh, 0, zeros, size, MPI_INT, &status);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_at(fh, (MPI_Offset)next * 4, &theirs, 1, MPI_INT, &status);
    check(theirs == 0, "what was overwritten, by consistency=posix");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_File_close(&fh);
  MPI_Info_free(&info);
}

/* All write the same blocks; a reader sees the blocks of one writer, never of two. */
static void atomic(const char *name) {
  enum { WORDS = 3000 };
  static int words[WORDS];
  MPI_Datatype spread;
  MPI_Status status;
  MPI_Type_vector(WORDS / 10, 10, 20, MPI_INT, &spread);
  MPI_Type_commit(&spread);
  MPI_File fh = open_as(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL);
  MPI_File_set_atomicity(fh, 1);
  MPI_File_set_view(fh, 4096, MPI_INT, spread, "native", MPI_INFO_NULL);
  for (int i = 0; i < WORDS; i++) words[i] = rank;
  for (int round = 0; round < 5; round++) {
    MPI_File_write_at(fh, 0, words, WORDS, MPI_INT, &status);
    int read[WORDS];
    MPI_File_read_at(fh, 0, read, WORDS, MPI_INT, &status);
    for (int i = 1; i < WORDS; i++)
      if (read[i] != read[0]) {
        check(0, "an atomic write was torn");
        break;
      }
    check(read[0] >= 0 && read[0] < size, "what an atomic read gives");
  }
  MPI_File_set_atomicity(fh, 0);
  MPI_File_close(&fh);
  MPI_Type_free(&spread);
}

/* Filled through one view by the first process, written through the next by all: no sync between, only that the
   view is set by all. HDF5 does so with its chunks. */
static void later_views_win(const char *name) {
  MPI_Status status;
  int back = 0, next = (rank + 1) % size, mine = 7000 + rank, *zeros = calloc((size_t)size, sizeof *zeros);
  MPI_File fh = open_as(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL);
  MPI_File_set_view(fh, 200000, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  MPI_File_write_at_all(fh, 0, zeros, rank == 0 ? size : 0, MPI_INT, &status);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_set_view(fh, 200000, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  MPI_File_write_at_all(fh, rank, &mine, 1, MPI_INT, &status);
  MPI_File_sync(fh);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(fh);
  MPI_File_read_at(fh, next, &back, 1, MPI_INT, &status);
  check(back == 7000 + next, "what was written through the later view");
  MPI_File_close(&fh);
  free(zeros);
}

/* A handle on all processes, and one of each alone, on the same file. */
static void two_openings(const char *name) {
  MPI_Status status;
  int word = 4000 + rank, back = 0;
  MPI_Offset at = 100000 + (MPI_Offset)rank * 4;
  MPI_File all = open_as(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL);
  MPI_File own = open_as(MPI_COMM_SELF, name, MPI_MODE_RDWR, MPI_INFO_NULL);
  MPI_File_write_at(own, at, &word, 1, MPI_INT, &status);
  MPI_File_sync(own);
  MPI_File_sync(all);
  MPI_File_read_at(all, at, &back, 1, MPI_INT, &status);
  check(back == word, "what the other handle wrote");
  word += 1000;
  MPI_File_write_at(all, at, &word, 1, MPI_INT, &status);
  MPI_File_sync(all);
  MPI_File_sync(own);
  MPI_File_read_at(own, at, &back, 1, MPI_INT, &status);
  check(back == word, "what was written later by the first handle");
  MPI_File_close(&own);
  MPI_File_close(&all);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2) return 2;
  const char *name = argv[1];
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "hayase", "on");
  MPI_Info_set(info, "hayase_flatten", "keep");
  MPI_File fh = open_as(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, info);
  int word = rank;
  MPI_File_write_at_all(fh, (MPI_Offset)rank * 4, &word, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_close(&fh);
  errors(name);
  at_once(name);
  atomic(name);
  later_views_win(name);
  two_openings(name);
  /* Gone at its last close; and by name. */
  char other[1024];
  snprintf(other, sizeof other, "%s-short", name);
  fh = open_as(MPI_COMM_WORLD, other, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info);
  MPI_File_write_shared(fh, &word, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_close(&fh);
  int code = MPI_File_open(MPI_COMM_WORLD, other, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh);
  check(class_of(code) == MPI_ERR_NO_SUCH_FILE, "a file that was to be deleted at its close");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    check(MPI_File_delete(name, MPI_INFO_NULL) == MPI_SUCCESS, "deleting");
    check(class_of(MPI_File_delete(name, MPI_INFO_NULL)) == MPI_ERR_NO_SUCH_FILE, "deleting again");
  }
  MPI_Info_free(&info);
  int any;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
