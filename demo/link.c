/* link: what MPI messages from rank 0 to rank 1 reach, in MiB/s: the speed of the link between two nodes.
 *
 *   link MIB
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE (1 << 20)

int main(int argc, char **argv) {
    static char piece[PIECE];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int pieces = argc == 2 ? atoi(argv[1]) : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < pieces; i++) {
        if (rank == 0) MPI_Send(piece, PIECE, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(piece, PIECE, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 1) printf("%.0f\n", pieces / (MPI_Wtime() - begin));
    MPI_Finalize();
    return 0;
}
