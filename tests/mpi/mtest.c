/* What the I/O tests of MPICH's source package want of their library: to begin, to end and to count errors.
 * Ours, so that nothing of that library has to be configured and built.
 */
#include "mpitest.h"

void MTest_Init(int *argc, char ***argv) {
  int ready;
  MPI_Initialized(&ready);
  if (!ready) MPI_Init(argc, argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}
void MTest_Finalize(int errors) {
  int rank, all;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf(all ? " Found %d errors\n" : " No Errors\n", all);
  MPI_Finalize();
}
int MTestReturnValue(int errors) { return errors > 0; }
void MTestPrintError(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, text, &length);
  printf("%s\n", text);
}
void MTestPrintErrorMsg(const char text[], int code) {
  printf("%s: ", text);
  MTestPrintError(code);
}
