/* See mtest.c. */
#ifndef MPITEST_H_INCLUDED
#define MPITEST_H_INCLUDED
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MTEST_VG_MEM_INIT(address, bytes) memset(address, 0, bytes)

void MTest_Init(int *argc, char ***argv);
void MTest_Finalize(int errors);
int MTestReturnValue(int errors);
void MTestPrintError(int code);
void MTestPrintErrorMsg(const char text[], int code);
#endif
