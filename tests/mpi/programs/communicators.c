/* Files and the communicators that they are opened on: copies are made, used again and freed; all processes have one
 * answer where one of them can not open or close a file.
 *
 *   communicators many FILE      (files are made beside it)
 *   communicators threads FILE   one thread opens while the other closes; needs MPI_THREAD_MULTIPLE
 *
 * A copy is seen by an attribute that is copied with it. Prints `WRONG` lines and fails when something differs.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FREED_COMMUNICATORS = 2500, ROUNDS = 150, NAME = 4096 };

static int rank, size, wrong;
static void check(int ok, const char *what) {
  if (!ok) printf("WRONG on rank %d: %s\n", rank, what), fflush(stdout), wrong = 1;
}
static const char *named(const char *file, const char *end) {
  static char name[NAME];
  snprintf(name, sizeof name, "%s.%s", file, end);
  return name;
}
static MPI_File opened(MPI_Comm comm, const char *name, int amode) {
  MPI_File fh;
  if (MPI_File_open(comm, name, amode, MPI_INFO_NULL, &fh)) printf("WRONG: no open of %s\n", name), MPI_Abort(MPI_COMM_WORLD, 3);
  return fh;
}
static void create(const char *name) {
  MPI_File fh = opened(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_File_write_at_all(fh, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
  check(MPI_File_close(&fh) == MPI_SUCCESS, "the first close");
}
/* All of them are in it: each says its own, by the shared pointer, which all must have put at the same place. */
static void use(MPI_File fh) {
  MPI_Offset at = -1;
  check(MPI_File_seek_shared(fh, 4, MPI_SEEK_SET) == MPI_SUCCESS, "a collective call");
  MPI_File_get_position_shared(fh, &at);
  check(at == 4, "what a collective call did");
}

/* --- copies are counted --- */

static int copied, deleted;
static int copies(MPI_Comm comm, int keyval, void *state, void *value, void *copy, int *flag) {
  (void)comm, (void)keyval, (void)state;
  *(void **)copy = value, *flag = 1, copied++;
  return MPI_SUCCESS;
}
static int deletes(MPI_Comm comm, int keyval, void *value, void *state) {
  (void)comm, (void)keyval, (void)value, (void)state;
  deleted++;
  return MPI_SUCCESS;
}
static MPI_Comm counted(MPI_Comm comm) {
  int keyval;
  MPI_Comm copy;
  MPI_Comm_dup(comm, &copy);
  MPI_Comm_create_keyval(copies, deletes, &keyval, NULL);
  MPI_Comm_set_attr(copy, keyval, &rank);
  MPI_Comm_free_keyval(&keyval); /* it lives as long as the attribute */
  copied = deleted = 0;
  return copy;
}
static int wanted(int count) { return size == 1 ? 0 : count; }

static void one_after_another(const char *file) {
  MPI_Comm comm = counted(MPI_COMM_WORLD);
  for (int n = 0; n < 6; n++) {
    MPI_File fh = opened(comm, file, n % 2 ? MPI_MODE_RDONLY : MPI_MODE_RDWR);
    use(fh);
    MPI_File_close(&fh);
  }
  check(copied == wanted(1) && deleted == 0, "one copy is made, and kept");
  MPI_Comm_free(&comm);
  check(deleted == copied + 1, "it is freed with the communicator");
}
static void several_at_a_time(const char *file) {
  MPI_Comm comm = counted(MPI_COMM_WORLD);
  MPI_File files[3];
  for (int round = 0; round < 3; round++) {
    for (int n = 0; n < 3; n++) files[n] = opened(comm, file, MPI_MODE_RDONLY), use(files[n]);
    for (int n = 0; n < 3; n++) use(files[(n + round) % 3]), MPI_File_close(&files[(n + round) % 3]);
  }
  check(copied == wanted(3) && deleted == 0, "a copy for each that is open");
  /* What is kept is freed with the communicator, what is in use with its file. */
  for (int n = 0; n < 2; n++) files[n] = opened(comm, file, MPI_MODE_RDWR);
  MPI_Comm_free(&comm);
  check(deleted == wanted(1) + 1, "what nobody uses is freed with the communicator");
  for (int n = 0; n < 2; n++) {
    use(files[n]);
    check(MPI_File_sync(files[n]) == MPI_SUCCESS, "a sync when the communicator is gone");
    MPI_File_close(&files[n]);
  }
  check(deleted == copied + 1, "what was in use is freed with its file");
}
/* MPICH has 2048 of them at a time. By two: with more processes than cores each copy takes long. */
static void many_communicators(const char *file) {
  for (int n = 0; n < FREED_COMMUNICATORS; n++) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_File fh = opened(comm, file, MPI_MODE_RDONLY);
    if (n % 2) MPI_Comm_free(&comm);
    MPI_File_close(&fh);
    if (n % 2 == 0) MPI_Comm_free(&comm);
  }
}
/* Each process is in three, that others are not all in. */
static void groups_that_overlap(const char *file) {
  MPI_Comm comms[3];
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &comms[0]);
  MPI_Comm_split(MPI_COMM_WORLD, (rank + 1) / 2, -rank, &comms[1]);
  MPI_Comm_dup(MPI_COMM_SELF, &comms[2]);
  for (int round = 0; round < 2; round++)
    for (int n = 0; n < 3; n++) {
      MPI_File fh = opened(comms[n], file, MPI_MODE_RDONLY);
      MPI_File_close(&fh);
    }
  MPI_Comm_free(&comms[1]);
  MPI_Comm_free(&comms[0]);
  MPI_Comm_free(&comms[2]);
}

/* --- one of them can not --- */

static struct rlimit set_limit(int which, rlim_t soft) {
  struct rlimit before, now;
  getrlimit(which, &before);
  now = before, now.rlim_cur = soft;
  setrlimit(which, &now);
  return before;
}
static int next_descriptor(void) {
  int next = open("/dev/null", O_RDONLY);
  close(next);
  return next;
}
static void one_can_not_open(const char *file) {
  MPI_Comm comm = counted(MPI_COMM_WORLD);
  for (int who = 0; who < size; who++)
    /* So many files more may the process open: what it fails at is another one each time. */
    for (int room = 0; room < 3; room++) {
      MPI_File fh = MPI_FILE_NULL;
      struct rlimit before = {0, 0};
      int next = next_descriptor();
      if (rank == who) before = set_limit(RLIMIT_NOFILE, (rlim_t)(next + room));
      int code = MPI_File_open(comm, file, MPI_MODE_RDWR, MPI_INFO_NULL, &fh);
      if (rank == who) setrlimit(RLIMIT_NOFILE, &before);
      int failed = code != MPI_SUCCESS, all = 0;
      MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      check(all == 0 || all == size, "some could open it, some not");
      check(room > 0 || all == size, "opened without a descriptor");
      if (!failed) MPI_File_close(&fh);
      check(next_descriptor() == next, "a descriptor is left");
    }
  MPI_File fh = MPI_FILE_NULL;
  int code = MPI_File_open(comm, file, rank == size - 1 ? MPI_MODE_RDONLY | MPI_MODE_WRONLY : MPI_MODE_RDWR, MPI_INFO_NULL, &fh);
  check(code != MPI_SUCCESS, "modes that are forbidden on one");
  fh = opened(comm, file, MPI_MODE_RDWR);
  use(fh);
  MPI_File_close(&fh);
  MPI_Comm_free(&comm);
  check(deleted == copied + 1, "copies after errors");
}
/* What one could not publish is no reason for the others to wait; and the file is not made flat without it. */
static void one_can_not_close(const char *file) {
  MPI_Info info;
  MPI_File fh;
  struct stat found;
  int who = size - 1;
  MPI_Info_create(&info);
  MPI_Info_set(info, "hayase_flatten", "close");
  signal(SIGXFSZ, SIG_IGN);
  for (int failing = 1; failing >= 0; failing--) {
    if (MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh)) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_File_write_at(fh, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    struct rlimit before = {0, 0};
    if (rank == who && failing) before = set_limit(RLIMIT_FSIZE, 1);
    int code = MPI_File_close(&fh);
    if (rank == who && failing) setrlimit(RLIMIT_FSIZE, &before);
    check((code != MPI_SUCCESS) == (failing && rank == who), "what a close says");
    MPI_Barrier(MPI_COMM_WORLD);
    check(stat(file, &found) == 0 && (failing ? S_ISDIR(found.st_mode) : S_ISREG(found.st_mode)), "what it leaves");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Info_free(&info);
}
static void sizes(const char *file) {
  MPI_File fh = opened(MPI_COMM_WORLD, file, MPI_MODE_RDWR);
  MPI_Offset end = 0, at = 0;
  check(MPI_File_set_size(fh, -1) != MPI_SUCCESS, "a negative size");
  check(size == 1 || MPI_File_set_size(fh, 100 + rank) != MPI_SUCCESS, "sizes that differ");
  check(MPI_File_set_size(fh, 4000) == MPI_SUCCESS, "a size afterwards");
  MPI_File_get_size(fh, &end);
  check(end == 4000, "the size afterwards");
  MPI_File_close(&fh);
  fh = opened(MPI_COMM_WORLD, file, MPI_MODE_RDWR | MPI_MODE_APPEND);
  MPI_File_get_position(fh, &end);
  MPI_File_get_position_shared(fh, &at);
  check(end == 4000 && at == 4000, "where appending begins");
  MPI_File_close(&fh);
}

static void many(const char *file) {
  create(file);
  one_after_another(file);
  several_at_a_time(file);
  groups_that_overlap(file);
  one_can_not_open(file);
  one_can_not_close(named(file, "limited"));
  sizes(file);
  if (size == 2) many_communicators(file);
}

/* --- one opens, the other closes --- */

static MPI_File handed = MPI_FILE_NULL;
static pthread_mutex_t hand = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static unsigned state;
static void wait_a_little(void) { usleep((state = state * 1664525u + 1013904223u) >> 8 & 255); }

static void *closes(void *unused) {
  for (int n = 0; n < ROUNDS; n++) {
    pthread_mutex_lock(&hand);
    while (handed == MPI_FILE_NULL) pthread_cond_wait(&moved, &hand);
    MPI_File fh = handed;
    handed = MPI_FILE_NULL;
    pthread_cond_signal(&moved);
    pthread_mutex_unlock(&hand);
    use(fh);
    check(MPI_File_close(&fh) == MPI_SUCCESS, "a close beside an open");
  }
  return unused;
}
static void threads(const char *file) {
  create(file);
  MPI_Comm comm = counted(MPI_COMM_WORLD);
  pthread_t closing;
  state = (unsigned)rank;
  pthread_create(&closing, NULL, closes, NULL);
  for (int n = 0; n < ROUNDS; n++) {
    MPI_File fh = opened(comm, file, MPI_MODE_RDONLY);
    wait_a_little();
    pthread_mutex_lock(&hand);
    while (handed != MPI_FILE_NULL) pthread_cond_wait(&moved, &hand);
    handed = fh;
    pthread_cond_signal(&moved);
    pthread_mutex_unlock(&hand);
  }
  pthread_join(closing, NULL);
  /* One is opened, one handed over, one closed; and one that some have closed and some not yet. */
  check(copied >= wanted(1) && copied <= wanted(4), "copies are used again");
  MPI_Comm_free(&comm);
  check(deleted == copied + 1, "copies that are left");
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  int is_threads = !strcmp(argv[1], "threads"), level;
  MPI_Init_thread(&argc, &argv, is_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!is_threads) many(argv[2]);
  else if (level == MPI_THREAD_MULTIPLE) threads(argv[2]);
  else if (rank == 0) printf("no MPI_THREAD_MULTIPLE\n");
  int any, keyval;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  /* The same on MPI_COMM_WORLD, which nobody frees: at the end of MPI. */
  MPI_Comm_create_keyval(copies, deletes, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &rank);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* has no copies in store */
  copied = deleted = 0;
  MPI_File fh[2];
  for (int n = 0; n < 2; n++) fh[n] = opened(comm, argv[2], MPI_MODE_RDONLY);
  for (int n = 0; n < 2; n++) MPI_File_close(&fh[n]);
  check(copied == wanted(2) && deleted == 0, "two copies at the end");
  MPI_Finalize();
  check(deleted >= copied, "copies are freed when MPI ends");
  return any || wrong;
}
