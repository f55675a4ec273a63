/* model: a program in rounds. Each computes for some seconds, then all ranks write a checkpoint, one file, through MPI-IO.
 *
 *   model DIRECTORY MIB_PER_RANK ROUNDS SECONDS
 *
 * Computing is a sleep, so that many ranks can share few processors. Of a checkpoint everything counts: open, write,
 * MPI_File_sync, close. Plain MPI-2, nothing of ours. Prints when it began, in seconds since 1970, and then, in seconds since
 * that:
 *
 *   begin TIME
 *   compute BEGIN END
 *   checkpoint BEGIN END
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PIECE (4 << 20)

static int rank, ranks;
static double start;

static void check(const char *what, int error) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (error == MPI_SUCCESS) return;
    MPI_Error_string(error, text, &length);
    fprintf(stderr, "model: rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What the 64-bit word number `at` of a checkpoint holds: no two words are alike (splitmix64). */
static uint64_t word(uint64_t round, uint64_t at) {
    uint64_t x = (at + (round << 48)) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* All ranks are here; rank 0 prints since when. */
static double phase(const char *name, double begin) {
    MPI_Barrier(MPI_COMM_WORLD);
    double now = MPI_Wtime() - start;
    if (rank == 0) {
        printf("%s %.3f %.3f\n", name, begin, now);
        fflush(stdout);
    }
    return now;
}

static void compute(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void checkpoint(const char *path, const uint64_t *bytes, MPI_Offset block) {
    MPI_File file;
    MPI_Status status;
    check("open", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    for (MPI_Offset at = 0; at < block; at += PIECE) {
        int count;
        check("write", MPI_File_write_at(file, block * rank + at, bytes + at / 8, PIECE, MPI_BYTE, &status));
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count != PIECE) check("write", MPI_ERR_IO);
    }
    check("sync", MPI_File_sync(file));
    check("close", MPI_File_close(&file));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc != 5) check("usage: model DIRECTORY MIB_PER_RANK ROUNDS SECONDS", MPI_ERR_ARG);
    MPI_Offset block = (MPI_Offset)atoll(argv[2]) << 20;
    int rounds = atoi(argv[3]);
    double seconds = atof(argv[4]);
    if (block <= 0 || block % PIECE) check("MIB_PER_RANK is a multiple of 4", MPI_ERR_ARG);
    uint64_t *bytes = malloc((size_t)block);
    if (!bytes) check("memory", MPI_ERR_NO_MEM);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    struct timespec begin;
    clock_gettime(CLOCK_REALTIME, &begin);
    if (rank == 0) printf("begin %.3f\n", (double)begin.tv_sec + (double)begin.tv_nsec / 1e9);
    double now = 0;
    for (int round = 1; round <= rounds; round++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/checkpoint.%d", argv[1], round);
        uint64_t first = (uint64_t)block * (uint64_t)rank / 8;
        for (uint64_t i = 0; i < (uint64_t)block / 8; i++) bytes[i] = word((uint64_t)round, first + i);
        compute(seconds);
        now = phase("compute", now);
        checkpoint(path, bytes, block);
        now = phase("checkpoint", now);
    }
    free(bytes);
    MPI_Finalize();
    return 0;
}
