/* Files of some processes read by others: what collective reads give must be what independent ones give.
 *
 *   exchanged write FILE      by any number: FILE.blocks, FILE.nested, FILE.random
 *   exchanged read FILE       by any number: all of them, by several decompositions
 *   exchanged damaged FILE    one file of which a part is missing
 *   exchanged same FILE       writes FILE and reads it back by the view that wrote it
 *
 * The hints hayase_exchange and hayase_exchange_buffer are what EXCHANGE and BUFFER say. Prints `WRONG` lines and
 * fails when something differs.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 47008, BLOCKS = 24, SIDE = 18, POINT = 40, STEPS = 4, RANDOM_BYTES = 1 << 20, EXTENTS = 150 };
enum { READ_MAX = 8 << 20 };

static int rank, size, wrong;
static char *got, *expected;

static void check(int ok, const char *what, const char *where) {
  if (!ok) printf("WRONG on rank %d of %d: %s (%s)\n", rank, size, what, where), wrong = 1;
}
static char value(MPI_Offset at) { return (char)(1 + (at * 2654435761u >> 11) % 251); }
static unsigned next_random(unsigned *state) { return *state = *state * 1664525u + 1013904223u, *state >> 8; }

static MPI_File opened(MPI_Comm comm, const char *name, int amode) {
  MPI_File fh;
  MPI_Info info;
  MPI_Info_create(&info);
  if (getenv("EXCHANGE")) MPI_Info_set(info, "hayase_exchange", getenv("EXCHANGE"));
  if (getenv("BUFFER")) MPI_Info_set(info, "hayase_exchange_buffer", getenv("BUFFER"));
  if (MPI_File_open(comm, name, amode, info, &fh)) {
    printf("WRONG on rank %d: %s does not open\n", rank, name);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Info_free(&info);
  return fh;
}
static const char *named(const char *file, const char *end) {
  static char name[4096];
  snprintf(name, sizeof name, "%s.%s", file, end);
  return name;
}

/* --- writing --- */

static int root(void) {
  int q = 1;
  while ((q + 1) * (q + 1) <= size) q++;
  return q;
}
/* Cells on a diagonal, as BT has them, where the number of processes is a square; else slabs. */
static MPI_Datatype mesh_view(void) {
  int q = root(), whole = q * q == size, cells = whole ? q : 1, lens[16];
  MPI_Datatype boxes[16], point, all;
  MPI_Aint places[16];
  MPI_Type_contiguous(POINT, MPI_BYTE, &point);
  for (int c = 0; c < cells; c++) {
    int parts[3] = {whole ? q : 1, whole ? q : 1, whole ? q : size}, sizes[3] = {SIDE, SIDE, SIDE}, subs[3], starts[3];
    int nth[3] = {whole ? c : 0, whole ? (rank / q + c) % q : 0, whole ? (rank % q + c) % q : rank};
    for (int d = 0; d < 3; d++) starts[d] = SIDE * nth[d] / parts[d], subs[d] = SIDE * (nth[d] + 1) / parts[d] - starts[d];
    MPI_Type_create_subarray(3, sizes, subs, starts, MPI_ORDER_C, point, &boxes[c]);
    lens[c] = 1, places[c] = 0;
  }
  MPI_Type_create_struct(cells, lens, places, boxes, &all);
  MPI_Type_commit(&all);
  for (int c = 0; c < cells; c++) MPI_Type_free(&boxes[c]);
  MPI_Type_free(&point);
  return all;
}
/* The byte of the file behind each byte of a step, by what MPI says of the view. */
static void fill_by_view(MPI_File fh, MPI_Offset at, char *bytes, int len) {
  for (int i = 0; i < len; i += 8) {
    MPI_Offset place;
    MPI_File_get_byte_offset(fh, at + i, &place);
    for (int b = 0; b < 8; b++) bytes[i + b] = value(place + b);
  }
}

static void write_blocks(const char *file) {
  MPI_File fh = opened(MPI_COMM_WORLD, named(file, "blocks"), MPI_MODE_CREATE | MPI_MODE_RDWR);
  for (int block = 0; block < BLOCKS; block++) {
    MPI_Offset at = ((MPI_Offset)block * size + rank) * BLOCK;
    for (int i = 0; i < BLOCK; i++) got[i] = value(at + i);
    MPI_File_write_at_all(fh, at, got, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  MPI_File_close(&fh);
}
static void write_nested(const char *file) {
  MPI_File fh = opened(MPI_COMM_WORLD, named(file, "nested"), MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_Datatype view = mesh_view();
  int bytes;
  MPI_Type_size(view, &bytes);
  MPI_File_set_view(fh, 0, MPI_BYTE, view, "native", MPI_INFO_NULL);
  for (int step = 0; step < STEPS; step++) {
    fill_by_view(fh, (MPI_Offset)step * bytes, got, bytes);
    MPI_File_write_at_all(fh, (MPI_Offset)step * bytes, got, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  MPI_Type_free(&view);
  MPI_File_close(&fh);
}
/* Extents anywhere, over each other, before and behind a sync; holes between them and at the end. */
static void write_random(const char *file) {
  MPI_File fh = opened(MPI_COMM_WORLD, named(file, "random"), MPI_MODE_CREATE | MPI_MODE_RDWR);
  unsigned state = 77 + rank;
  for (int nth = 0; nth < EXTENTS; nth++) {
    int len = 1 + next_random(&state) % (nth % 10 ? 3000 : 20000);
    MPI_Offset at = next_random(&state) % (RANDOM_BYTES - len);
    memset(got, 1 + rank * 50 + nth % 50, len);
    MPI_File_write_at(fh, at, got, len, MPI_BYTE, MPI_STATUS_IGNORE);
    if (nth == EXTENTS / 2) MPI_File_sync(fh);
  }
  MPI_File_set_size(fh, RANDOM_BYTES + 5000);
  MPI_File_close(&fh);
}

/* --- reading --- */

static int count_of(MPI_Status *status) {
  int count = -1;
  MPI_Get_count(status, MPI_BYTE, &count);
  return count;
}
/* What an independent read at the same place gives, and with the same memory. */
static void same_as_alone(MPI_File fh, MPI_Offset at, int len, MPI_Datatype memory, int code, MPI_Status *status, const char *where) {
  MPI_Status alone;
  int each, extent_bytes;
  MPI_Aint low, extent;
  MPI_Type_size(memory, &each);
  MPI_Type_get_extent(memory, &low, &extent);
  extent_bytes = each ? len / each * (int)extent : 0;
  memset(expected, 0x77, extent_bytes);
  int code_alone = MPI_File_read_at(fh, at, expected, each ? len / each : 0, memory, &alone), class, class_alone;
  MPI_Error_class(code, &class), MPI_Error_class(code_alone, &class_alone);
  check(class == class_alone, "the class of the error", where);
  check(count_of(status) == count_of(&alone), "the count of the status", where);
  if (!code) check(!memcmp(got, expected, extent_bytes), "the bytes", where);
}
static void read_at_all(MPI_File fh, MPI_Offset at, int len, MPI_Datatype memory, const char *where) {
  MPI_Status status;
  int each;
  MPI_Aint low, extent;
  MPI_Type_size(memory, &each);
  MPI_Type_get_extent(memory, &low, &extent);
  memset(got, 0x77, len / each * (int)extent);
  int code = MPI_File_read_at_all(fh, at, got, len / each, memory, &status);
  same_as_alone(fh, at, len, memory, code, &status, where);
}
static int smaller(MPI_Offset a, MPI_Offset b) { return (int)(a < b ? a : b); }

/* Each its share, in steps; the first one nothing; all of them behind the end. */
static void shares(MPI_File fh, MPI_Offset end) {
  MPI_Offset from = end * rank / size, to = end * (rank + 1) / size;
  read_at_all(fh, from, smaller(to - from, READ_MAX), MPI_BYTE, "a share");
  read_at_all(fh, from, rank ? smaller(to - from, READ_MAX) : 0, MPI_BYTE, "nothing on rank 0");
  read_at_all(fh, end - 1000 * rank, 1500, MPI_BYTE, "at the end");
  read_at_all(fh, end + 10, 100, MPI_BYTE, "behind the end");
  read_at_all(fh, 100, 30000, MPI_BYTE, "the same for all");
}
/* Small blocks in turns, by the individual pointer, into memory with gaps; the last call finds the end. */
static void turns(MPI_File fh, MPI_Offset end) {
  enum { TURN = 480 };
  MPI_Datatype turn, memory;
  MPI_Status status;
  MPI_Type_contiguous(TURN, MPI_BYTE, &turn);
  MPI_Type_create_resized(turn, 0, (MPI_Aint)TURN * size, &turn);
  MPI_Type_commit(&turn);
  MPI_Type_create_hvector(TURN / 16, 16, 24, MPI_BYTE, &memory);
  MPI_Type_create_resized(memory, 0, TURN / 16 * 24, &memory);
  MPI_Type_commit(&memory);
  MPI_File_set_view(fh, rank * TURN, MPI_BYTE, turn, "native", MPI_INFO_NULL);
  int third = (int)(end / size / 3 / TURN * TURN);
  MPI_Offset before = 0, now;
  for (int call = 0; call < 4; call++) {
    int len = call % 2 ? third : third + TURN;
    MPI_Datatype as = call % 2 ? memory : MPI_BYTE;
    memset(got, 0x77, len / TURN * (TURN / 16 * 24));
    int code = MPI_File_read_all(fh, got, call % 2 ? len / TURN : len, as, &status);
    same_as_alone(fh, before, len, as, code, &status, "turns");
    MPI_File_get_position(fh, &now);
    check(now == before + count_of(&status), "the pointer", "turns");
    before = now;
  }
  MPI_Type_free(&turn);
  MPI_Type_free(&memory);
}
/* Cells or slabs of these processes. */
static void meshes(MPI_File fh, MPI_Offset end) {
  MPI_Datatype view = mesh_view();
  int bytes;
  MPI_Type_size(view, &bytes);
  MPI_File_set_view(fh, 0, MPI_BYTE, view, "native", MPI_INFO_NULL);
  for (int step = 0; (MPI_Offset)step * SIDE * SIDE * SIDE * POINT < end && step < 2 * STEPS; step++)
    read_at_all(fh, (MPI_Offset)step * bytes, bytes, MPI_BYTE, "cells");
  MPI_Type_free(&view);
}
/* Extents that each process has for itself, also such as others have. */
static void anywhere(MPI_File fh, MPI_Offset end) {
  enum { PIECES = 200 };
  int lens[PIECES];
  MPI_Aint places[PIECES];
  unsigned state = 5 + rank;
  MPI_Offset at = 0;
  for (int nth = 0; nth < PIECES; nth++) {
    at += next_random(&state) % (unsigned)(2 * end / PIECES);
    lens[nth] = 1 + next_random(&state) % 700, places[nth] = at;
    at += lens[nth];
  }
  MPI_Datatype type;
  MPI_Type_create_hindexed(PIECES, lens, places, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  int bytes;
  MPI_Type_size(type, &bytes);
  MPI_File_set_view(fh, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
  read_at_all(fh, 0, bytes, MPI_BYTE, "extents anywhere");
  read_at_all(fh, bytes / 3, bytes / 2, MPI_BYTE, "a part of extents anywhere");
  MPI_Type_free(&type);
}
/* Split and ordered calls, and one process that calls wrongly. */
static void others(MPI_File fh, MPI_Offset end) {
  MPI_Status status;
  MPI_Offset each = end / (size + 1);
  int len = smaller(each, READ_MAX / 2), code;
  MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  memset(got, 0x77, len);
  MPI_Status_set_elements(&status, MPI_BYTE, 0); /* what has not begun does not end */
  code = MPI_File_read_at_all_begin(fh, rank * each, got, len, MPI_BYTE);
  if (!code) code = MPI_File_read_at_all_end(fh, got, &status);
  same_as_alone(fh, rank * each, len, MPI_BYTE, code, &status, "split");
  MPI_File_seek(fh, rank * each / 2, MPI_SEEK_SET);
  memset(got, 0x77, len);
  MPI_Status_set_elements(&status, MPI_BYTE, 0);
  code = MPI_File_read_all_begin(fh, got, len, MPI_BYTE);
  if (!code) code = MPI_File_read_all_end(fh, got, &status);
  same_as_alone(fh, rank * each / 2, len, MPI_BYTE, code, &status, "split at the pointer");
  MPI_File_seek_shared(fh, 0, MPI_SEEK_SET);
  for (int turn = 0; turn < 2; turn++) {
    int own = (int)(each / 2) - rank * 7; /* each another length */
    MPI_Offset before = 0;
    for (int r = 0; r < rank; r++) before += each / 2 - r * 7;
    for (int r = 0; turn && r < size; r++) before += each / 2 - r * 7;
    memset(got, 0x77, own);
    code = MPI_File_read_ordered(fh, got, own, MPI_BYTE, &status);
    same_as_alone(fh, before, own, MPI_BYTE, code, &status, "ordered");
  }
  MPI_Offset wrong_place = rank == size - 1 ? -5 : rank * each;
  memset(got, 0x77, len);
  code = MPI_File_read_at_all(fh, wrong_place, got, len, MPI_BYTE, &status);
  if (rank == size - 1) check(code != MPI_SUCCESS, "no error of a wrong offset", "one calls wrongly");
  else same_as_alone(fh, wrong_place, len, MPI_BYTE, code, &status, "one calls wrongly");
  MPI_File_seek(fh, rank * 100, MPI_SEEK_SET);
  code = MPI_File_read_all(fh, got, rank == 0 ? -1 : 5000, MPI_BYTE, &status);
  if (rank == 0) check(code != MPI_SUCCESS, "no error of a wrong count", "one calls wrongly");
  else same_as_alone(fh, rank * 100, 5000, MPI_BYTE, code, &status, "one has a wrong count");
  /* Each access has the file for itself: no exchange, and no difference. */
  MPI_File_set_atomicity(fh, 1);
  read_at_all(fh, rank * each, 4096, MPI_BYTE, "atomic mode");
  MPI_File_set_atomicity(fh, 0);
  read_at_all(fh, rank * each, 4096, MPI_BYTE, "behind atomic mode");
}
static void read_one(const char *name, int known) {
  MPI_File fh = opened(MPI_COMM_WORLD, name, MPI_MODE_RDONLY);
  MPI_Offset end;
  MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN);
  MPI_File_get_size(fh, &end);
  shares(fh, end);
  if (known) {
    MPI_Offset from = end * rank / size;
    int len = smaller(end * (rank + 1) / size - from, READ_MAX), same = 1;
    MPI_File_read_at_all(fh, from, got, len, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < len; i++) same &= got[i] == value(from + i);
    check(same, "what was written", name);
  }
  turns(fh, end);
  meshes(fh, end);
  anywhere(fh, end);
  others(fh, end);
  MPI_File_close(&fh);
}

/* The view that wrote, in the processes that wrote: each finds its own part, and nobody has to be asked. */
static void same_view(const char *file) {
  MPI_File fh = opened(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_Datatype view = mesh_view();
  int bytes;
  MPI_Type_size(view, &bytes);
  MPI_File_set_view(fh, 0, MPI_BYTE, view, "native", MPI_INFO_NULL);
  for (int step = 0; step < STEPS; step++) {
    fill_by_view(fh, (MPI_Offset)step * bytes, got, bytes);
    MPI_File_write_at_all(fh, (MPI_Offset)step * bytes, got, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  for (int step = 0; step < STEPS; step++) {
    read_at_all(fh, (MPI_Offset)step * bytes, bytes, MPI_BYTE, "the view that wrote");
    fill_by_view(fh, (MPI_Offset)step * bytes, expected, bytes);
    check(!memcmp(got, expected, bytes), "what was written", "the view that wrote");
  }
  MPI_File_close(&fh);
  /* Other processes than those that wrote, the same views. */
  fh = opened(MPI_COMM_WORLD, file, MPI_MODE_RDONLY);
  MPI_File_set_view(fh, 0, MPI_BYTE, view, "native", MPI_INFO_NULL);
  for (int step = 0; step < STEPS; step++) read_at_all(fh, (MPI_Offset)step * bytes, bytes, MPI_BYTE, "the view again");
  MPI_Type_free(&view);
  MPI_File_close(&fh);
}

int main(int argc, char **argv) {
  int any;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 3) return 2;
  got = malloc(READ_MAX * 2), expected = malloc(READ_MAX * 2);
  if (!strcmp(argv[1], "write")) {
    write_blocks(argv[2]), write_nested(argv[2]), write_random(argv[2]);
  } else if (!strcmp(argv[1], "read")) {
    static char blocks[4096], nested[4096];
    strcpy(blocks, named(argv[2], "blocks")), strcpy(nested, named(argv[2], "nested"));
    read_one(blocks, 1), read_one(nested, 1), read_one(named(argv[2], "random"), 0);
  } else if (!strcmp(argv[1], "damaged")) {
    read_one(argv[2], 0);
  } else {
    same_view(argv[2]);
  }
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
