/* Bad input and faults, one each:
 *
 *   faults rounds FILE ROUNDS MICROSECONDS   write a block and sync, ROUNDS times, then close; rank 1 kills
 *                                            itself after so long (0: never). What was synced is noted beside.
 *   faults verify FILE RANKS FLAT            (no MPI) what was noted is in FLAT, the rest is right or zero
 *   faults blocks FILE FIRST                 each rank writes blocks FIRST + rank + 8 * n, and reads them back
 *   faults full FILE                         rank 0 writes more than the disk holds
 *   faults damaged FILE                      opening or reading must fail
 *   faults hints FILE                        hints that mean nothing are left out
 *   faults views FILE                        views that MPI forbids are refused, and change nothing
 *   faults threads FILE                      four threads of each process write and read one file
 *
 * Prints `WRONG` lines and fails when something differs.
 */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { BLOCK = 47008, STRIDE = 8, BLOCKS = 40, THREADS = 4 };

static int rank, size, wrong;
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), fflush(stdout), wrong = 1;
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
/* Never zero, and another at each place. */
static int64_t word_at(int64_t offset) { return offset * 3 + 1; }
static void fill(char *data, int64_t offset) {
  for (int b = 0; b < BLOCK; b += 8) {
    int64_t word = word_at(offset + b);
    memcpy(data + b, &word, 8);
  }
}
static int holds(const char *data, int64_t offset) {
  char expected[BLOCK];
  fill(expected, offset);
  return memcmp(data, expected, BLOCK) == 0;
}
static int64_t place(long round, int who, int of) { return ((int64_t)round * of + who) * BLOCK; }

/* --- killed --- */

static void note_name(char *name, size_t len, const char *file, int who) { snprintf(name, len, "%s.noted.%d", file, who); }
static void note(const char *file, long rounds) {
  char name[4096];
  note_name(name, sizeof name, file, rank);
  FILE *noted = fopen(name, "w");
  fprintf(noted, "%ld\n", rounds), fclose(noted);
}
static void die(int signal) {
  (void)signal;
  kill(getpid(), SIGKILL);
}
static void rounds(const char *file, long count, long microseconds) {
  static char data[BLOCK];
  MPI_File fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
  note(file, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1 && microseconds > 0) {
    struct itimerval timer = {{0, 0}, {microseconds / 1000000, microseconds % 1000000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
  }
  for (long round = 0; round < count; round++) {
    fill(data, place(round, rank, size));
    MPI_File_write_at_all(fh, place(round, rank, size), data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    check(MPI_File_sync(fh) == MPI_SUCCESS, "sync");
    note(file, round + 1);
  }
  MPI_File_close(&fh);
  if (rank == 1 && microseconds > 0) pause(); /* killed behind its close at the latest */
}
static int verify(const char *file, int ranks, const char *flat) {
  static char data[BLOCK], zeros[BLOCK];
  FILE *bytes = fopen(flat, "r");
  if (!bytes) return printf("WRONG: %s is not there\n", flat), 1;
  long acknowledged[64], found = 0;
  for (int who = 0; who < ranks; who++) {
    char name[4096];
    note_name(name, sizeof name, file, who);
    FILE *noted = fopen(name, "r");
    acknowledged[who] = 0;
    if (noted) wrong |= fscanf(noted, "%ld", &acknowledged[who]) > 1, fclose(noted);
  }
  for (long nth = 0; ; nth++) {
    memset(data, 0, BLOCK);
    size_t len = fread(data, 1, BLOCK, bytes);
    int who = (int)(nth % ranks);
    if (len == 0) {
      int left = 0;
      for (int later = who; later < ranks; later++) left |= acknowledged[later] > nth / ranks;
      for (int before = 0; before < who; before++) left |= acknowledged[before] > nth / ranks + 1;
      if (left) wrong = 1, printf("WRONG: the file ends at block %ld, before what was synced\n", nth);
      break;
    }
    int is_right = holds(data, nth * BLOCK), is_hole = memcmp(data, zeros, BLOCK) == 0;
    if (!is_right && (!is_hole || acknowledged[who] > nth / ranks))
      wrong = 1, printf("WRONG: block %ld of rank %d\n", nth / ranks, who);
    found += is_right;
  }
  printf("%ld blocks found, %ld syncs noted by rank 0\n", found, acknowledged[0]);
  return wrong;
}

/* --- two programs, threads --- */

static void write_blocks(MPI_File fh, int first) {
  static char data[BLOCK];
  for (int n = 0; n < BLOCKS; n++) {
    MPI_Offset at = (MPI_Offset)(first + rank + STRIDE * n) * BLOCK;
    fill(data, at);
    check(MPI_File_write_at(fh, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS, "a block");
    if (n % 8 == 7) MPI_File_sync(fh);
  }
}
static void read_blocks(MPI_File fh, int first) {
  static char data[BLOCK];
  for (int n = 0; n < BLOCKS; n++) {
    MPI_Offset at = (MPI_Offset)(first + rank + STRIDE * n) * BLOCK;
    MPI_File_read_at(fh, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    check(holds(data, at), "an own block, read back");
  }
}
static void blocks(const char *file, int first) {
  MPI_File fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
  write_blocks(fh, first);
  read_blocks(fh, first);
  MPI_File_close(&fh);
}

typedef struct { MPI_File fh; int nth; pthread_t thread; } Part;
static void *one_thread(void *argument) {
  Part *part = argument;
  char data[BLOCK];
  for (int n = 0; n < BLOCKS; n++) {
    MPI_Offset at = (((MPI_Offset)n * size + rank) * THREADS + part->nth) * BLOCK;
    fill(data, at);
    check(MPI_File_write_at(part->fh, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS, "a write of a thread");
    memset(data, 0, BLOCK);
    MPI_Offset before = at - (MPI_Offset)(n % 5 ? size * THREADS : 0) * BLOCK;
    MPI_Request request;
    MPI_File_iread_at(part->fh, before, data, BLOCK, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(holds(data, before), "what a thread wrote");
  }
  return NULL;
}
static void threads(const char *file) {
  Part parts[THREADS];
  MPI_File fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
  for (int nth = 0; nth < THREADS; nth++) {
    parts[nth] = (Part){.fh = fh, .nth = nth};
    pthread_create(&parts[nth].thread, NULL, one_thread, &parts[nth]);
  }
  for (int nth = 0; nth < THREADS; nth++) pthread_join(parts[nth].thread, NULL);
  MPI_File_close(&fh);
}

/* --- full disk, damage, hints, views --- */

static void full(const char *file) {
  enum { LEN = 3 << 20 };
  char *data = malloc(LEN), *back = malloc(LEN);
  int count = 0;
  MPI_Status status;
  for (int b = 0; b < LEN; b++) data[b] = (char)(b % 251 + 1);
  MPI_File fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
  if (rank == 0) {
    int code = MPI_File_write_at(fh, 0, data, LEN, MPI_BYTE, &status);
    check(class_of(code) == MPI_ERR_NO_SPACE, "the class of a full disk");
    MPI_Get_count(&status, MPI_BYTE, &count);
    check(count > 0 && count < LEN, "how much was written");
    int read = 0;
    MPI_File_read_at(fh, 0, back, LEN, MPI_BYTE, &status);
    MPI_Get_count(&status, MPI_BYTE, &read);
    check(read == count && memcmp(data, back, (size_t)count) == 0, "what was written before the disk was full");
    check(class_of(MPI_File_write_at(fh, LEN, data, LEN, MPI_BYTE, &status)) == MPI_ERR_NO_SPACE, "still full");
    MPI_Get_count(&status, MPI_BYTE, &read);
    check(read == 0, "nothing was written then");
    char hog[4200];
    snprintf(hog, sizeof hog, "%s.hog", file);
    check(unlink(hog) == 0, "making room");
  }
  check(MPI_File_sync(fh) == MPI_SUCCESS, "a sync when there is room");
  MPI_File_close(&fh);
  fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_RDONLY, MPI_INFO_NULL);
  MPI_Offset end;
  MPI_File_get_size(fh, &end);
  MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
  check(end == count, "the size afterwards");
  MPI_File_read_at(fh, 0, back, count, MPI_BYTE, MPI_STATUS_IGNORE);
  check(memcmp(data, back, (size_t)count) == 0, "the bytes afterwards");
  MPI_File_close(&fh);
}
static int handled;
static void handle(MPI_File *fh, int *code, ...) { handled += *fh == MPI_FILE_NULL && *code != MPI_SUCCESS; }
static void damaged(const char *file) {
  static char data[BLOCK];
  MPI_File fh;
  MPI_Errhandler handler;
  MPI_File_create_errhandler(handle, &handler);
  MPI_File_set_errhandler(MPI_FILE_NULL, handler);
  int code = MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh);
  check(handled == (code != MPI_SUCCESS), "the handler of files that are not open");
  if (code != MPI_SUCCESS) return;
  for (int n = 0; n < BLOCKS && code == MPI_SUCCESS; n++)
    for (int who = 0; who < STRIDE && code == MPI_SUCCESS; who++)
      code = MPI_File_read_at(fh, (MPI_Offset)(who + STRIDE * n) * BLOCK, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
  check(class_of(code) == MPI_ERR_IO, "all of a damaged file could be read");
  MPI_File_close(&fh);
}
static void hints(const char *file) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "hayase", "perhaps");
  MPI_Info_set(info, "hayase_flatten", "sometimes");
  MPI_Info_set(info, "hayase_consistency", "best");
  MPI_Info_set(info, "hayase_unheard_of", "1");
  MPI_File fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, info);
  MPI_File_write_at_all(fh, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_close(&fh);
  MPI_Info_free(&info);
}
static void refused(MPI_File fh, MPI_Offset at, MPI_Datatype etype, MPI_Datatype filetype, const char *rep, const char *what) {
  check(MPI_File_set_view(fh, at, etype, filetype, rep, MPI_INFO_NULL) != MPI_SUCCESS, what);
}
static void views(const char *file) {
  MPI_Datatype three, none, before, still, twice;
  int word = 7 + rank, back = 0;
  MPI_File fh = open_as(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
  MPI_Type_contiguous(3, MPI_BYTE, &three);
  MPI_Type_contiguous(0, MPI_BYTE, &none);
  MPI_Type_create_hvector(2, 1, -8, MPI_INT, &before);
  MPI_Type_create_resized(MPI_INT, 0, 0, &still);
  int lens[2] = {1, 1}, places[2] = {0, 0};
  MPI_Type_indexed(2, lens, places, MPI_INT, &twice);
  MPI_Datatype *all[] = {&three, &none, &before, &still, &twice};
  for (int n = 0; n < 5; n++) MPI_Type_commit(all[n]);
  MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  refused(fh, 0, MPI_INT, three, "native", "a filetype that is no whole number of etypes");
  refused(fh, -4, MPI_INT, MPI_INT, "native", "a negative displacement");
  refused(fh, 0, none, none, "native", "an etype of no bytes");
  refused(fh, 0, MPI_INT, twice, "native", "a filetype that selects bytes twice");
  refused(fh, 4, MPI_INT, before, "native", "a filetype that begins before the file");
  refused(fh, 0, MPI_INT, still, "native", "a filetype of no extent");
  refused(fh, 0, MPI_INT, MPI_INT, "martian", "an unknown representation");
  refused(fh, 0, MPI_DATATYPE_NULL, MPI_INT, "native", "the null datatype");
  /* What was set before still holds. */
  check(MPI_File_write_at(fh, rank, &word, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS, "a write afterwards");
  MPI_File_read_at(fh, rank, &back, 1, MPI_INT, MPI_STATUS_IGNORE);
  check(back == word, "what was written afterwards");
  MPI_File_close(&fh);
  for (int n = 0; n < 5; n++) MPI_Type_free(all[n]);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *what = argv[1], *file = argv[2];
  if (!strcmp(what, "verify")) return verify(file, atoi(argv[3]), argv[4]);
  int level;
  MPI_Init_thread(&argc, &argv, strcmp(what, "threads") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!strcmp(what, "rounds")) rounds(file, atol(argv[3]), atol(argv[4]));
  else if (!strcmp(what, "blocks")) blocks(file, atoi(argv[3]));
  else if (!strcmp(what, "full")) full(file);
  else if (!strcmp(what, "damaged")) damaged(file);
  else if (!strcmp(what, "hints")) hints(file);
  else if (!strcmp(what, "views")) views(file);
  else if (strcmp(what, "threads")) return 2;
  else if (level == MPI_THREAD_MULTIPLE) threads(file);
  else if (rank == 0) printf("no MPI_THREAD_MULTIPLE\n");
  int any;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
