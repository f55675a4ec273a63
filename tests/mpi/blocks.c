/* blocks: every rank writes its contiguous block of one shared file through MPI-IO, then reads and
 * verifies a block that a rank on another host wrote.
 *
 *   blocks [--collective] [--verify-only|--write-only] FILE MIB_PER_RANK
 *
 * Plain MPI-2, nothing of ours: what any MPI program does. Exits with 1 when a byte is wrong.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (4 << 20)

static int rank, ranks;

static void die(const char *what, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (error != MPI_SUCCESS) MPI_Error_string(error, text, &length);
    fprintf(stderr, "blocks: rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const char *what, int error) {
    if (error != MPI_SUCCESS) die(what, error);
}

/* What the 64-bit word number `at` of the file must hold: no two words are alike (splitmix64). */
static uint64_t word(uint64_t at) {
    uint64_t x = at * 0x9e3779b97f4a7c15ull + 0x1234567;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* The first rank after ours that runs on another host; ours + 1 where all run on one. */
static int rank_elsewhere(void) {
    static char name[MPI_MAX_PROCESSOR_NAME], *names;
    int length, step;
    MPI_Get_processor_name(name, &length);
    names = malloc((size_t)ranks * sizeof name);
    if (!names) die("no memory", MPI_SUCCESS);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, MPI_COMM_WORLD);
    for (step = 1; step < ranks; step++) {
        int other = (rank + step) % ranks;
        if (strcmp(name, names + (size_t)other * sizeof name) != 0) {
            printf("  rank %d on %s reads what rank %d wrote on %s\n", rank, name, other,
                   names + (size_t)other * sizeof name);
            fflush(stdout);
            free(names);
            return other;
        }
    }
    free(names);
    return (rank + 1) % ranks;
}

static void report(const char *what, double seconds, double mib) {
    double slowest;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%s %.0f MiB in %.3f s: %.0f MiB/s\n", what, mib, slowest, mib / slowest);
}

int main(int argc, char **argv) {
    int collective = 0, verify_only = 0, write_only = 0, first = 1, other;
    MPI_Offset block, at, start;
    MPI_File file;
    MPI_Status status;
    uint64_t *piece, wrong = 0, all_wrong;
    double begin;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--collective") == 0) collective = 1;
        else if (strcmp(argv[first], "--verify-only") == 0) verify_only = 1;
        else if (strcmp(argv[first], "--write-only") == 0) write_only = 1;
        else die("unknown option", MPI_SUCCESS);
    }
    if (argc - first != 2) die("usage: blocks [OPTION] FILE MIB", MPI_SUCCESS);
    block = (MPI_Offset)atoll(argv[first + 1]) << 20;
    piece = malloc(PIECE);
    if (!piece || block <= 0 || block % PIECE) die("MIB must be a multiple of 4", MPI_SUCCESS);

    check("open", MPI_File_open(MPI_COMM_WORLD, argv[first],
                                verify_only ? MPI_MODE_RDONLY : MPI_MODE_CREATE | MPI_MODE_RDWR,
                                MPI_INFO_NULL, &file));
    start = block * rank;
    if (!verify_only) {
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        for (at = start; at < start + block; at += PIECE) {
            int count;
            for (uint64_t i = 0; i < PIECE / 8; i++) piece[i] = word((uint64_t)at / 8 + i);
            check("write", (collective ? MPI_File_write_at_all : MPI_File_write_at)(
                               file, at, piece, PIECE, MPI_BYTE, &status));
            MPI_Get_count(&status, MPI_BYTE, &count);
            if (count != PIECE) die("short write", MPI_SUCCESS);
        }
        check("sync", MPI_File_sync(file));
        report("write+sync", MPI_Wtime() - begin, (double)block * ranks / (1 << 20));
    }
    if (write_only) {
        check("close", MPI_File_close(&file));
        free(piece);
        MPI_Finalize();
        return 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    other = rank_elsewhere();
    start = block * other;
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (at = start; at < start + block; at += PIECE) {
        int count;
        memset(piece, 0, PIECE);
        check("read", (collective ? MPI_File_read_at_all : MPI_File_read_at)(
                          file, at, piece, PIECE, MPI_BYTE, &status));
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count != PIECE) die("short read", MPI_SUCCESS);
        for (uint64_t i = 0; i < PIECE / 8; i++) wrong += piece[i] != word((uint64_t)at / 8 + i);
    }
    report("read+verify", MPI_Wtime() - begin, (double)block * ranks / (1 << 20));
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    check("close", MPI_File_close(&file));
    if (rank == 0) {
        if (all_wrong) printf("WRONG: %llu words\n", (unsigned long long)all_wrong);
        else printf("verified: every rank read another one's block\n");
    }
    free(piece);
    MPI_Finalize();
    return all_wrong != 0;
}
