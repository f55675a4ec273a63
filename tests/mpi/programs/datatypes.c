/* Random datatypes, as memory and as file views, against what MPI_Pack and MPI_Unpack say they select.
 *
 *   datatypes FILE [FIRST_SEED [SEEDS [DEPTH]]]
 *
 * The oracle is the MPI library itself: a write of memory that a type describes must give the bytes that
 * MPI_Pack gives; a read through a view must give what MPI_Pack gives of the file as an array. Prints one
 * line for each difference, and how many types were tried. One process.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPAN (1 << 17)   /* bytes on each side of the origin that a type may reach */
#define PACKED_MAX (1 << 16)

static uint64_t state;
static unsigned below(unsigned n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return n ? (unsigned)((state >> 33) % n) : 0;
}

static const char *how; /* the constructor that was used last, for people */

static MPI_Datatype basic(void) {
  switch (below(8)) {
    case 0: return MPI_CHAR;
    case 1: return MPI_SHORT;
    case 2: return MPI_INT;
    case 3: return MPI_DOUBLE;
    case 4: return MPI_SHORT_INT;  /* has a gap */
    case 5: return MPI_DOUBLE_INT; /* is longer than what it holds */
    case 6: return MPI_LONG; /* MPI_LONG_DOUBLE has padding, which MPICH's MPI_Pack does not copy */
    default: return MPI_BYTE;
  }
}

#define FEW 4
static MPI_Datatype make(int depth);

static MPI_Datatype make_array(MPI_Datatype inner) {
  MPI_Datatype made = MPI_DATATYPE_NULL;
  int dims = 1 + below(3), order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  int sizes[3], subsizes[3], starts[3], dists[3], dargs[3], psizes[3], ranks = 1;
  for (int d = 0; d < dims; d++) {
    sizes[d] = 1 + below(5);
    subsizes[d] = 1 + below(sizes[d]);
    starts[d] = below(sizes[d] - subsizes[d] + 1);
    psizes[d] = 1 + below(3);
    switch (below(3)) {
      case 0: dists[d] = MPI_DISTRIBUTE_NONE, psizes[d] = 1, dargs[d] = MPI_DISTRIBUTE_DFLT_DARG; break;
      case 1:
        dists[d] = MPI_DISTRIBUTE_BLOCK;
        dargs[d] = below(2) ? MPI_DISTRIBUTE_DFLT_DARG : (sizes[d] + psizes[d] - 1) / psizes[d];
        break;
      default:
        dists[d] = MPI_DISTRIBUTE_CYCLIC;
        dargs[d] = below(2) ? MPI_DISTRIBUTE_DFLT_DARG : 1 + (int)below(2);
    }
    ranks *= psizes[d];
  }
#if MPI_VERSION >= 4
  MPI_Count large[3][3];
  for (int d = 0; d < dims; d++) large[0][d] = sizes[d], large[1][d] = subsizes[d], large[2][d] = starts[d];
#endif
  switch (below(4)) {
    case 0: how = "subarray"; MPI_Type_create_subarray(dims, sizes, subsizes, starts, order, inner, &made); break;
    case 1: how = "darray"; MPI_Type_create_darray(ranks, below(ranks), dims, sizes, dists, dargs, psizes, order, inner, &made); break;
#if MPI_VERSION >= 4
    case 2: how = "subarray_c"; MPI_Type_create_subarray_c(dims, large[0], large[1], large[2], order, inner, &made); break;
    default: how = "darray_c"; MPI_Type_create_darray_c(ranks, below(ranks), dims, large[0], dists, dargs, psizes, order, inner, &made);
#else
    case 2: how = "subarray"; MPI_Type_create_subarray(dims, sizes, subsizes, starts, order, inner, &made); break;
    default: how = "darray"; MPI_Type_create_darray(ranks, below(ranks), dims, sizes, dists, dargs, psizes, order, inner, &made);
#endif
  }
  if (made == MPI_DATATYPE_NULL) MPI_Type_dup(inner, &made);
  return made;
}

static MPI_Datatype make_list(MPI_Datatype inner, int depth) {
  MPI_Datatype made, types[FEW];
  int n = 1 + below(FEW), blocks[FEW], places[FEW];
  MPI_Aint bytes[FEW], lb, extent;
  MPI_Type_get_extent(inner, &lb, &extent);
  for (int i = 0, at = 0; i < n; i++) {
    blocks[i] = below(3);
    at += below(3);
    places[i] = at;
    bytes[i] = (MPI_Aint)at * extent + below(9);
    at += blocks[i] ? blocks[i] : 1;
    types[i] = inner;
  }
#if MPI_VERSION >= 4
  MPI_Count large[3][FEW];
  for (int i = 0; i < n; i++) large[0][i] = blocks[i], large[1][i] = places[i], large[2][i] = bytes[i];
#endif
  int own = 0;
  switch (below(MPI_VERSION >= 4 ? 10 : 5)) {
    case 0: how = "indexed"; MPI_Type_indexed(n, blocks, places, inner, &made); break;
    case 1: how = "hindexed"; MPI_Type_create_hindexed(n, blocks, bytes, inner, &made); break;
    case 2: how = "indexed_block"; MPI_Type_create_indexed_block(n, 1 + below(2), places, inner, &made); break;
    case 3: how = "hindexed_block"; MPI_Type_create_hindexed_block(n, 1 + below(2), bytes, inner, &made); break;
#if MPI_VERSION >= 4
    case 4: how = "indexed_c"; MPI_Type_indexed_c(n, large[0], large[1], inner, &made); break;
    case 5: how = "hindexed_c"; MPI_Type_create_hindexed_c(n, large[0], large[2], inner, &made); break;
    case 6: how = "indexed_block_c"; MPI_Type_create_indexed_block_c(n, 1 + below(2), large[1], inner, &made); break;
    case 7: how = "hindexed_block_c"; MPI_Type_create_hindexed_block_c(n, 1 + below(2), large[2], inner, &made); break;
    case 8: {
      MPI_Count at = 0;
      for (int i = 0; i < n; i++) {
        if (i > 0 && below(2)) types[i] = make(depth - 1), own |= 1 << i;
        MPI_Type_get_extent(types[i], &lb, &extent);
        large[2][i] = at + below(9);
        at = large[2][i] + blocks[i] * extent;
      }
      how = "struct_c";
      MPI_Type_create_struct_c(n, large[0], large[2], types, &made);
      break;
    }
#endif
    default: {
      MPI_Aint at = 0;
      for (int i = 0; i < n; i++) {
        if (i > 0 && below(2)) types[i] = make(depth - 1), own |= 1 << i;
        MPI_Type_get_extent(types[i], &lb, &extent);
        bytes[i] = at + below(9);
        at = bytes[i] + blocks[i] * extent;
      }
      how = "struct";
      MPI_Type_create_struct(n, blocks, bytes, types, &made);
    }
  }
  for (int i = 0; i < n; i++)
    if (own >> i & 1) MPI_Type_free(&types[i]);
  return made;
}

/* Not empty: of types with empty parts MPICH 4.0 divides by zero, and Open MPI 4.1 packs by another extent
 * than it tells. */
static MPI_Datatype filled(MPI_Datatype made) {
  int size;
  MPI_Type_size(made, &size);
  if (size > 0) return made;
  MPI_Type_free(&made);
  MPI_Type_dup(basic(), &made);
  return made;
}

static MPI_Datatype make(int depth) {
  MPI_Datatype made, inner;
  if (depth <= 0) {
    MPI_Type_dup(basic(), &made);
    return made;
  }
  if (below(3)) inner = make(depth - 1);
  else MPI_Type_dup(basic(), &inner);
  MPI_Aint lb, extent;
  MPI_Type_get_extent(inner, &lb, &extent);
  int count = below(4), block = below(3), stride = block + below(4);
  switch (below(9)) {
    case 0: how = "contiguous"; MPI_Type_contiguous(count, inner, &made); break;
    case 1: how = "vector"; MPI_Type_vector(count, block, stride, inner, &made); break;
    case 2: how = "hvector"; MPI_Type_create_hvector(count, block, stride * extent + below(5), inner, &made); break;
    case 3: how = "resized"; MPI_Type_create_resized(inner, below(2) ? lb : -(MPI_Aint)below(8), extent + below(9), &made); break;
#if MPI_VERSION >= 4
    case 4: how = "vector_c"; MPI_Type_vector_c(count, block, stride, inner, &made); break;
    case 5:
      if (below(2)) how = "hvector_c", MPI_Type_create_hvector_c(count, block, stride * extent + below(5), inner, &made);
      else if (below(2)) how = "contiguous_c", MPI_Type_contiguous_c(count, inner, &made);
      else how = "resized_c", MPI_Type_create_resized_c(inner, lb, extent + below(9), &made);
      break;
#endif
    case 6: made = make_array(inner); break;
    default: made = make_list(inner, depth);
  }
  MPI_Type_free(&inner);
  return filled(made);
}

static int failures, views;
static void differ(unsigned seed, const char *what) {
  printf("DIFFERENT seed %u (%s): %s\n", seed, how, what);
  failures++;
}

static unsigned char memory[2 * SPAN], other[2 * SPAN], image[2 * SPAN];
static unsigned char packed[PACKED_MAX], got[PACKED_MAX];

static int pack(const void *from, int count, MPI_Datatype type) {
  int at = 0;
  MPI_Pack(from, count, type, packed, PACKED_MAX, &at, MPI_COMM_SELF);
  return at;
}
static void unpack(void *to, int bytes, int count, MPI_Datatype type) {
  int at = 0;
  if (bytes > 0) MPI_Unpack(packed, bytes, &at, to, count, type, MPI_COMM_SELF);
}

/* Memory that the type describes, written and read at the start of the file. */
static void as_memory(unsigned seed, MPI_File fh, MPI_Datatype type, int count) {
  MPI_Status status;
  int told;
  for (int i = 0; i < 2 * SPAN; i++) memory[i] = (unsigned char)below(256);
  int size = pack(memory + SPAN, count, type);
  MPI_File_write_at(fh, 0, memory + SPAN, count, type, &status);
  MPI_Get_count(&status, MPI_BYTE, &told);
  if (told != size) differ(seed, "count of a write from memory");
  memset(got, 0, sizeof got);
  if (size) MPI_File_read_at(fh, 0, got, size, MPI_BYTE, &status);
  if (memcmp(got, packed, size)) differ(seed, "bytes written from memory");
  memset(memory, 0, sizeof memory);
  memset(other, 0, sizeof other);
  MPI_File_read_at(fh, 0, memory + SPAN, count, type, &status);
  unpack(other + SPAN, size, count, type);
  if (memcmp(memory, other, sizeof memory)) differ(seed, "memory read from the file");
}

/* Whether a filetype is one that MPI allows where files are written: no byte before its place, each behind the last. */
static int ascends(MPI_Datatype type, MPI_Aint true_lb) {
  static int places[PACKED_MAX];
  if (true_lb < 0) return 0;
  memset(places, 0, sizeof places);
  int size = 0, last = -1;
  for (int shift = 0; shift <= 16; shift += 8) {
    for (int i = 0; i < 2 * SPAN; i++) other[i] = (unsigned char)(i >> shift);
    size = pack(other, 1, type);
    for (int i = 0; i < size; i++) places[i] |= packed[i] << shift;
  }
  for (int i = 0; i < size; last = places[i++])
    if (places[i] <= last) return 0;
  return 1;
}

/* The type as a filetype: a stretch of the view's stream read, and written. */
static void as_view(unsigned seed, MPI_File fh, MPI_Datatype type, int tiles) {
  MPI_Aint lb, extent, true_lb, true_extent;
  MPI_Status status;
  int size;
  MPI_Type_size(type, &size);
  MPI_Type_get_extent(type, &lb, &extent);
  MPI_Type_get_true_extent(type, &true_lb, &true_extent);
  if (size == 0 || extent <= 0) return;
  MPI_Offset disp = below(50);
  for (int i = 0; i < SPAN; i++) image[i] = (unsigned char)below(256);
  MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  MPI_File_write_at(fh, 0, image, SPAN, MPI_BYTE, &status);
  MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN);
  int class, code = MPI_File_set_view(fh, disp, MPI_BYTE, type, "native", MPI_INFO_NULL);
  MPI_File_set_errhandler(fh, MPI_ERRORS_ARE_FATAL);
  if ((code == MPI_SUCCESS) != ascends(type, true_lb)) differ(seed, "whether a view is allowed");
  if (code != MPI_SUCCESS) {
    MPI_Error_class(code, &class);
    if (class != MPI_ERR_IO) differ(seed, "the class of a view that is not allowed");
    return;
  }
  views++;
  int whole = pack(image + disp, tiles, type), start = below(whole), len = 1 + below(whole - start);
  memset(got, 0, sizeof got);
  MPI_File_read_at(fh, start, got, len, MPI_BYTE, &status);
  if (memcmp(got, packed + start, len)) differ(seed, "bytes read through a view");
  MPI_Offset place;
  MPI_File_get_byte_offset(fh, start, &place);
  if (place >= SPAN || image[place] != packed[start]) differ(seed, "the place of a byte of the view");
  /* Written where each byte is selected once: else MPI forbids it. */
  for (int i = 0; i < whole; i++) packed[i] = 1;
  memset(memory, 0, sizeof memory);
  unpack(memory + disp, whole, tiles, type);
  int selected = 0;
  for (int i = 0; i < 2 * SPAN; i++) selected += memory[i];
  if (selected != whole) return;
  for (int i = 0; i < whole; i++) packed[i] = (unsigned char)below(256);
  unpack(image + disp, whole, tiles, type);
  MPI_File_write_at(fh, start, packed + start, whole - start, MPI_BYTE, &status);
  if (start) MPI_File_write_at(fh, 0, packed, start, MPI_BYTE, &status);
  MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  MPI_File_read_at(fh, 0, memory, SPAN, MPI_BYTE, &status);
  if (memcmp(memory, image, SPAN)) differ(seed, "bytes written through a view");
}

/* A new file now and then: each type leaves its records in it. */
static MPI_File reopen(MPI_File fh, const char *name) {
  if (fh != MPI_FILE_NULL) MPI_File_close(&fh);
  int mode = MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE;
  if (MPI_File_open(MPI_COMM_SELF, name, mode, MPI_INFO_NULL, &fh)) exit(2);
  MPI_File_set_errhandler(fh, MPI_ERRORS_ARE_FATAL);
  return fh;
}

/* Big-endian in the file, and elements that would be shorter there refused. */
static void external32(MPI_File fh) {
  int words[2] = {0x01020304, 0x05060708}, back[2] = {0, 0};
  MPI_Status status;
  MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL);
  MPI_File_write_at(fh, 0, words, 2, MPI_INT, &status);
  MPI_File_read_at(fh, 0, back, 2, MPI_INT, &status);
  if (memcmp(words, back, sizeof words)) differ(0, "external32 read back");
  MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  MPI_File_read_at(fh, 0, got, 8, MPI_BYTE, &status);
  for (int i = 0; i < 8; i++)
    if (got[i] != i + 1) differ(0, "external32 as bytes");
  MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN);
  int class, code = MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "home-made", MPI_INFO_NULL);
  MPI_Error_class(code, &class);
  if (class != MPI_ERR_UNSUPPORTED_DATAREP) differ(0, "a representation that is not known");
}

/* A type that selects nothing moves nothing. */
static void empty(MPI_File fh) {
  MPI_Datatype nothing;
  MPI_Status status;
  int told = 1;
  MPI_Type_contiguous(0, MPI_INT, &nothing);
  MPI_Type_commit(&nothing);
  MPI_File_write_at(fh, 0, memory, 3, nothing, &status);
  MPI_Get_count(&status, MPI_BYTE, &told);
  if (told != 0) differ(0, "count of a write of an empty type");
  MPI_Type_free(&nothing);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc < 2) return 2;
  unsigned first = argc > 2 ? (unsigned)atoi(argv[2]) : 1, seeds = argc > 3 ? (unsigned)atoi(argv[3]) : 500;
  unsigned depth = argc > 4 ? (unsigned)atoi(argv[4]) : 4, tried = 0;
  /* Some libraries refuse some distributions that MPI allows; such types are left out. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_File fh = MPI_FILE_NULL;
  for (unsigned seed = first; seed < first + seeds; seed++) {
    if ((seed - first) % 50 == 0) fh = reopen(fh, argv[1]);
    state = seed * 2654435761u + 12345;
    MPI_Datatype type = make(1 + below(depth));
    if (MPI_Type_commit(&type)) continue;
    MPI_Aint lb, extent, true_lb, true_extent;
    int size, count = 1 + below(3);
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    MPI_Aint reach = labs(true_lb) + true_extent + 3 * labs(extent) + 100;
    if (reach < SPAN && (long)size * 3 < PACKED_MAX) {
      MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
      as_memory(seed, fh, type, count);
      as_view(seed, fh, type, 3);
      tried++;
    }
    MPI_Type_free(&type);
  }
  empty(fh);
  external32(fh);
  MPI_File_close(&fh);
  printf("%u types, %d of them views, %d differences\n", tried, views, failures);
  MPI_Finalize();
  return failures ? 1 : 0;
}
