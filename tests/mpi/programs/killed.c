/* A program of which a process is killed: what was synced must be read afterwards, the rest may be missing,
 * and no byte may be wrong.
 *
 *   killed FILE WHEN ROUNDS            WHEN: never, written, syncing, synced, closing, closed
 *   killed --check FILE SYNCED RANKS   without MPI: reads FILE as any program does
 *
 * In each round every process writes a block, then all sync; rank 0 says `synced N` when N rounds are.
 * Rank 1 is killed in the second round, or at that moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 65536

static uint64_t words[BLOCK / 8];

/* No two words of the file are alike, and none is zero. */
static uint64_t word(uint64_t at) { return (at + 1) * 0x9e3779b97f4a7c15ull | 1; }

static void die(const char *what) {
  fprintf(stderr, "killed: %s: %s\n", what, strerror(errno));
  exit(2);
}

/* A little later than now, wherever this process is then. */
static void kill_soon(int microseconds) {
  pid_t self = getpid();
  if (fork() != 0) return;
  usleep((useconds_t)microseconds);
  kill(self, SIGKILL);
  _exit(0);
}

static int check(const char *path, long synced, long ranks) {
  uint64_t at = 0, wrong = 0, missing = 0, must = (uint64_t)(synced * ranks) * BLOCK / 8;
  int file = open(path, O_RDONLY);
  ssize_t got;
  if (file < 0) die(path);
  while ((got = read(file, words, BLOCK)) > 0)
    for (ssize_t i = 0; i < got / 8; i++, at++) {
      if (words[i] == word(at)) continue;
      if (words[i] == 0) missing += at < must;
      else wrong++;
    }
  if (got < 0) die("read");
  if (at < must) missing += must - at;
  printf("%llu words, %llu of them synced: %llu missing, %llu wrong\n", (unsigned long long)at,
         (unsigned long long)must, (unsigned long long)missing, (unsigned long long)wrong);
  close(file);
  return missing || wrong;
}

int main(int argc, char **argv) {
  int rank, ranks, rounds, is_victim;
  const char *when;
  MPI_File file;
  if (argc == 5 && strcmp(argv[1], "--check") == 0)
    return check(argv[2], atol(argv[3]), atol(argv[4]));
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  when = argv[2], rounds = atoi(argv[3]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  is_victim = rank == 1;
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file))
    MPI_Abort(MPI_COMM_WORLD, 2);
  for (int round = 0; round < rounds; round++) {
    MPI_Offset at = ((MPI_Offset)round * ranks + rank) * BLOCK;
    for (int i = 0; i < BLOCK / 8; i++) words[i] = word((uint64_t)at / 8 + (uint64_t)i);
    if (MPI_File_write_at(file, at, words, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE))
      MPI_Abort(MPI_COMM_WORLD, 3);
    if (round == 1 && is_victim && strcmp(when, "written") == 0) raise(SIGKILL);
    if (round == 1 && is_victim && strcmp(when, "syncing") == 0) kill_soon(800);
    if (MPI_File_sync(file)) MPI_Abort(MPI_COMM_WORLD, 4);
    if (rank == 0) printf("synced %d\n", round + 1), fflush(stdout);
    if (round == 1 && is_victim && strcmp(when, "synced") == 0) raise(SIGKILL);
  }
  if (is_victim && strcmp(when, "closing") == 0) kill_soon(500);
  if (MPI_File_close(&file)) MPI_Abort(MPI_COMM_WORLD, 5);
  if (is_victim && strcmp(when, "closed") == 0) raise(SIGKILL);
  MPI_Finalize();
  return 0;
}
