/* The access patterns that `./bench.sh mpiio` times, as a program of any MPI.
 *
 *   patterns KEY=VALUE...
 *
 *   file=PATH      pattern=nested|simple|blocks|regions|views
 *   files=one|each one shared file (N-1), or one for each process by the same calls (N-N)
 *   calls=all|own  collective or independent
 *   do=write|read|both        steps=N  how many times (calls of blocks, meshes of nested and simple)
 *   side=N         points of a mesh in each direction, of 40 bytes (BT: 24 is class W)
 *   block=BYTES    of blocks: they interleave, rank by rank
 *   count=N        regions that a process has
 *   region=BYTES   of one of them, a multiple of 8 (default 8); spacing=BYTES  of the gap behind each (default 8)
 *   memory=dense|gaps          of regions
 *   check=first|all            one word of each call, or every byte
 *   sync=1         what was written is durable before it is closed; that counts as closing
 *   pin=1          ranks stay on the processors that they may use, dealt to them in turn
 *   warm=1         the memory that new files will take was used just before, by each process
 *   hints=KEY:VALUE,KEY:VALUE
 *
 * Rank 0 prints one line for each direction:
 *
 *   write BYTES OPEN MOVE CLOSE CPU      seconds; the slowest process of each phase; CPU of all
 *
 * and for `views`: `views SECONDS_PER_CALL_AGAIN SECONDS_PER_CALL_NEW`. Bytes that differ end it with status 1.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { POINT = 40, SETS = 20000, BATCH_BYTES = 4 << 20 };

static int rank, size;
static const char *file = "", *pattern = "", *files = "one", *calls = "all", *doing = "both";
static const char *memory = "dense", *check = "first", *hints = "";
static long steps = 1, side = 24, block = 4 << 20, count = 65536, region = 8, spacing = 8, syncing = 0, pinning = 0,
            warming = 0;

static void fail(const char *what, long where) {
  fprintf(stderr, "rank %d: %s (%ld)\n", rank, what, where);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
static void must(int code, const char *what) {
  if (code != MPI_SUCCESS) fail(what, code);
}
static int is(const char *text, const char *other) { return strcmp(text, other) == 0; }

static void read_arguments(int argc, char **argv) {
  struct { const char *key, **text; long *number; } known[] = {
      {"file", &file, 0},     {"pattern", &pattern, 0}, {"files", &files, 0}, {"calls", &calls, 0},
      {"do", &doing, 0},      {"memory", &memory, 0},   {"check", &check, 0}, {"hints", &hints, 0},
      {"steps", 0, &steps},   {"side", 0, &side},       {"block", 0, &block}, {"count", 0, &count},
      {"region", 0, &region}, {"spacing", 0, &spacing}, {"sync", 0, &syncing},
      {"pin", 0, &pinning},     {"warm", 0, &warming},
  };
  for (int i = 1; i < argc; i++) {
    char *value = strchr(argv[i], '=');
    size_t len = value ? (size_t)(value - argv[i]) : 0, found = 0;
    for (size_t k = 0; value && k < sizeof known / sizeof *known; k++) {
      if (strlen(known[k].key) != len || strncmp(known[k].key, argv[i], len)) continue;
      if (known[k].text) *known[k].text = value + 1;
      else *known[k].number = atol(value + 1);
      found = 1;
    }
    if (!found) fail(argv[i], i);
  }
}

static MPI_Info info_of(const char *text) {
  MPI_Info info;
  MPI_Info_create(&info);
  char *copy = strdup(text);
  for (char *pair = strtok(copy, ","); pair; pair = strtok(NULL, ",")) {
    char *value = strchr(pair, ':');
    if (!value) fail("hints", 0);
    *value = 0;
    MPI_Info_set(info, pair, value + 1);
  }
  free(copy);
  return info;
}

/* Who moves from one processor to another is slower for it, more often in one run than in the next. */
static void pin(void) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof allowed, &allowed)) fail("sched_getaffinity", 0);
  int nth = rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && nth-- == 0) CPU_SET(cpu, &own);
  if (sched_setaffinity(0, sizeof own, &own)) fail("sched_setaffinity", rank);
}

/* --- which bytes: `runs` of contiguous bytes of one step, in the order of the stream --- */

typedef struct { long start, len; } Run;
static Run *runs;
static long run_count, step_bytes, step_extent; /* own bytes of a step; bytes of a step of all */

static void add_run(long start, long len) {
  static long room;
  if (run_count == room) runs = realloc(runs, sizeof *runs * (size_t)(room = room ? 2 * room : 1024));
  runs[run_count++] = (Run){start, len};
  step_bytes += len;
}
static int root(void) {
  int q = 1;
  while ((q + 1) * (q + 1) <= size) q++;
  return q;
}
static long cut(long n, long parts, long nth) { return n * nth / parts; }

static void add_box(const long from[3], const long to[3]) {
  for (long z = from[2]; z < to[2]; z++)
    for (long y = from[1]; y < to[1]; y++)
      add_run(((z * side + y) * side + from[0]) * POINT, (to[0] - from[0]) * POINT);
}
/* Cells of BT: q of them on a diagonal for q * q processes; else each process has a piece of every row. */
static void cell(int c, long from[3], long to[3]) {
  int q = root(), whole = q * q == size;
  for (int d = 0; d < 3; d++) from[d] = 0, to[d] = side;
  if (whole) {
    int x = (rank % q + c) % q, y = (rank / q + c) % q;
    from[0] = cut(side, q, x), to[0] = cut(side, q, x + 1);
    from[1] = cut(side, q, y), to[1] = cut(side, q, y + 1);
    from[2] = cut(side, q, c), to[2] = cut(side, q, c + 1);
  } else
    from[0] = cut(side, size, rank), to[0] = cut(side, size, rank + 1);
}
static int cells(void) { return root() * root() == size ? root() : 1; }

static MPI_Datatype mesh_view(void) {
  int n = cells(), lens[64];
  MPI_Datatype boxes[64], point, all;
  MPI_Aint places[64];
  MPI_Type_contiguous(5, MPI_DOUBLE, &point);
  for (int c = 0; c < n; c++) {
    long from[3], to[3];
    int sizes[3], subs[3], starts[3];
    cell(c, from, to);
    for (int d = 0; d < 3; d++) {
      sizes[2 - d] = (int)side, subs[2 - d] = (int)(to[d] - from[d]), starts[2 - d] = (int)from[d];
    }
    MPI_Type_create_subarray(3, sizes, subs, starts, MPI_ORDER_C, point, &boxes[c]);
    lens[c] = 1, places[c] = 0;
  }
  MPI_Type_create_struct(n, lens, places, boxes, &all);
  MPI_Type_commit(&all);
  for (int c = 0; c < n; c++) MPI_Type_free(&boxes[c]);
  MPI_Type_free(&point);
  return all;
}
static MPI_Datatype regions_view(void) {
  MPI_Datatype all;
  MPI_Type_create_hvector((int)count, (int)region, (MPI_Aint)(size * (region + spacing)), MPI_BYTE, &all);
  MPI_Type_commit(&all);
  return all;
}

static void plan(void) {
  if (is(pattern, "nested") || is(pattern, "simple")) {
    for (int c = 0; c < cells(); c++) {
      long from[3], to[3];
      cell(c, from, to);
      add_box(from, to);
    }
    step_extent = side * side * side * POINT;
  } else if (is(pattern, "blocks")) {
    add_run(rank * block, block);
    step_extent = size * block;
  } else {
    for (long r = 0; r < count; r++) add_run((r * size + rank) * (region + spacing), region);
    step_extent = 0; /* the same regions again */
  }
}

/* --- what they hold: each word its own place in the file --- */

/* As many steps as fit in BATCH_BYTES are filled, then moved one after the other, then checked: processes wait for each
 * other before a batch, and not before each small block. */
static char *buffer;
static size_t slot_bytes; /* of one step */
static long batch;
static MPI_Datatype memory_type;
static int memory_count;

static char *slot_of(long step) { return buffer + (size_t)(step % batch) * slot_bytes; }
static char *place_in_memory(long step, long at) {
  return slot_of(step) + (is(memory, "gaps") ? at / region * (region + spacing) + at % region : at);
}
static void fill_or_check(long step, int filling) {
  long at = 0;
  for (long r = 0; r < run_count; r++) {
    for (long b = 0; b < runs[r].len; b += 8) {
      int64_t word = step * step_extent + runs[r].start + b;
      long len = runs[r].len - b < 8 ? runs[r].len - b : 8;
      char *place = place_in_memory(step, at + b);
      if (filling) memcpy(place, &word, (size_t)len);
      else if (memcmp(place, &word, (size_t)len)) fail("wrong bytes at", (long)word);
      if (is(check, "first") && step_extent) return;
    }
    at += runs[r].len;
  }
}
static void set_up_memory(void) {
  int gaps = is(memory, "gaps");
  slot_bytes = (size_t)(gaps ? step_bytes / region * (region + spacing) : step_bytes);
  batch = BATCH_BYTES / (long)slot_bytes < 1 ? 1 : BATCH_BYTES / (long)slot_bytes;
  if (batch > steps) batch = steps;
  /* Ranks meet before each batch: where their pieces differ in size, the one with the largest says how often. */
  MPI_Allreduce(MPI_IN_PLACE, &batch, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
  buffer = malloc((size_t)batch * slot_bytes);
  memset(buffer, 0, (size_t)batch * slot_bytes);
  if (gaps) {
    MPI_Type_create_hvector((int)(step_bytes / region), (int)region, (MPI_Aint)(region + spacing), MPI_BYTE, &memory_type);
    memory_count = 1;
  } else {
    MPI_Type_contiguous(8, MPI_BYTE, &memory_type);
    if (step_bytes % 8) fail("blocks are words", step_bytes);
    memory_count = (int)(step_bytes / 8);
  }
  MPI_Type_commit(&memory_type);
}

/* What is free for two seconds a virtual machine's host may take back, and whoever touches it next waits for a tenth of
 * its speed. A file of the same size, written by calls of the same size and removed, brings back just the pages that
 * the next one gets: memory of the process does not, nor what another process did before. */
static void warm(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s.warm.%d", file, rank);
  int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  for (long step = 0; step < steps; step++)
    if (write(fd, buffer, (size_t)step_bytes) != step_bytes) fail("warm", step);
  close(fd);
  unlink(name);
}

/* --- moving them --- */

typedef struct { double open, move, close, cpu; } Times;

static double cpu(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* All are here, and leave together. MPICH spins in a barrier, also with more processes than cores: some then
 * leave it a time slice or more after the others, and what comes next would be charged for it where processes
 * wait for each other and not where they do not. */
static void meet(void) {
  MPI_Request all;
  int here = 0;
  MPI_Ibarrier(MPI_COMM_WORLD, &all);
  while (MPI_Test(&all, &here, MPI_STATUS_IGNORE), !here) sched_yield();
}

static int move(MPI_File fh, int writing, MPI_Offset at, void *data, int n, MPI_Datatype type, MPI_Status *status) {
  int all = is(calls, "all");
  if (writing)
    return all ? MPI_File_write_at_all(fh, at, data, n, type, status) : MPI_File_write_at(fh, at, data, n, type, status);
  return all ? MPI_File_read_at_all(fh, at, data, n, type, status) : MPI_File_read_at(fh, at, data, n, type, status);
}

static void move_step(MPI_File fh, int writing, long step) {
  MPI_Status status;
  int moved, each = is(files, "each");
  if (is(pattern, "simple")) {
    long at = 0;
    for (long r = 0; r < run_count; at += runs[r++].len) {
      MPI_Offset offset = each ? step * step_bytes + at : step * step_extent + runs[r].start;
      must(move(fh, writing, offset, slot_of(step) + at, (int)runs[r].len, MPI_BYTE, &status), "a row");
    }
    return;
  }
  /* Etypes are bytes. A view's stream has one step behind the other; explicit offsets say where. */
  int viewed = !is(pattern, "blocks"), again = is(pattern, "regions");
  MPI_Offset offset = again ? 0 : viewed || each ? step * step_bytes : step * step_extent + runs[0].start;
  must(move(fh, writing, offset, slot_of(step), memory_count, memory_type, &status), "a step");
  MPI_Get_count(&status, MPI_BYTE, &moved);
  if (moved != step_bytes) fail("bytes moved", moved);
}

static Times go(int writing) {
  Times t = {0, 0, 0, 0};
  MPI_File fh;
  MPI_Info info = info_of(hints);
  int each = is(files, "each"), amode = writing ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY;
  char name[4096];
  snprintf(name, sizeof name, each ? "%s.%d" : "%s", file, rank);
  if (writing && warming) warm();
  double cpu_before = cpu(), begin;
  meet();
  begin = MPI_Wtime();
  must(MPI_File_open(each ? MPI_COMM_SELF : MPI_COMM_WORLD, name, amode, info, &fh), "open");
  if (!each && !is(pattern, "blocks") && !is(pattern, "simple")) {
    int nested = is(pattern, "nested");
    MPI_Datatype view = nested ? mesh_view() : regions_view();
    must(MPI_File_set_view(fh, nested ? 0 : rank * (region + spacing), MPI_BYTE, view, "native", info), "set_view");
    MPI_Type_free(&view);
  }
  t.open = MPI_Wtime() - begin;
  meet(); /* where processes share a processor, what is not timed is not done beside what is */
  MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN);
  for (long first = 0; first < steps; first += batch) {
    long end = first + batch < steps ? first + batch : steps;
    if (!writing) memset(buffer, 0xff, (size_t)batch * slot_bytes);
    for (long step = first; writing && step < end; step++) fill_or_check(step, 1);
    meet();
    begin = MPI_Wtime();
    for (long step = first; step < end; step++) move_step(fh, writing, step);
    t.move += MPI_Wtime() - begin;
    meet();
    for (long step = first; !writing && step < end; step++) fill_or_check(step, 0);
  }
  meet();
  begin = MPI_Wtime();
  if (writing && syncing) must(MPI_File_sync(fh), "sync");
  must(MPI_File_close(&fh), "close");
  t.close = MPI_Wtime() - begin;
  t.cpu = cpu() - cpu_before;
  MPI_Info_free(&info);
  meet();
  return t;
}

static void tell(const char *what, Times t) {
  double own[3] = {t.open, t.move, t.close}, most[3], cpu_sum;
  MPI_Reduce(own, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&t.cpu, &cpu_sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  long bytes = step_bytes * steps, all;
  MPI_Reduce(&bytes, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s %ld %.9f %.9f %.9f %.9f\n", what, all, most[0], most[1], most[2], cpu_sum), fflush(stdout);
}

/* A view and the view of bytes in turns, as HDF5 sets them around each transfer. */
static void views(void) {
  MPI_File fh;
  MPI_Info info = info_of(hints);
  must(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh), "open");
  MPI_Datatype view = regions_view();
  double times[2], most[2];
  for (int fresh = 0; fresh < 2; fresh++) {
    double made = 0, begin = MPI_Wtime();
    for (int i = 0; i < SETS; i++) {
      if (fresh) {
        double before = MPI_Wtime();
        MPI_Type_free(&view);
        view = regions_view();
        made += MPI_Wtime() - before;
      }
      must(MPI_File_set_view(fh, 0, MPI_BYTE, view, "native", info), "set_view");
      must(MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", info), "set_view");
    }
    times[fresh] = (MPI_Wtime() - begin - made) / (2 * SETS);
  }
  MPI_Type_free(&view);
  MPI_File_close(&fh);
  MPI_Info_free(&info);
  MPI_Reduce(times, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("views %.12f %.12f\n", most[0], most[1]), fflush(stdout);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  read_arguments(argc, argv);
  if (pinning) pin();
  if (is(pattern, "views")) {
    views();
  } else {
    plan();
    set_up_memory();
    int writes = !is(doing, "read"), reads = !is(doing, "write");
    Times of_writing = {0, 0, 0, 0}, of_reading = of_writing;
    if (writes) of_writing = go(1);
    if (reads) of_reading = go(0);
    if (writes) tell("write", of_writing); /* now: the launcher, which prints it, would disturb what follows */
    if (reads) tell("read", of_reading);
  }
  MPI_Finalize();
  return 0;
}
