/* An MPI library that nobody knows, and a program that uses it: what the library answers must arrive.
 * Built twice: with LIBRARY it is the library, without it the program. */
#include <string.h>

#ifdef LIBRARY
int PMPI_Get_library_version(char *version, int *length) {
  strcpy(version, "Strange MPI 1.0");
  *length = (int)strlen(version);
  return 0;
}
int PMPI_File_open(void *comm, const char *name, int amode, void *info, void **fh) {
  (void)comm, (void)name, (void)info;
  *fh = (void *)4711L;
  return amode == 8 ? 0 : 77;
}
int MPI_File_open(void *comm, const char *name, int amode, void *info, void **fh) {
  return PMPI_File_open(comm, name, amode, info, fh);
}
int PMPI_File_write_at(void *fh, long offset, const void *buf, int count, void *type, void *status) {
  (void)buf, (void)type, (void)status;
  return fh == (void *)4711L && offset == 1L << 40 ? count : -1;
}
int MPI_File_write_at(void *fh, long offset, const void *buf, int count, void *type, void *status) {
  return PMPI_File_write_at(fh, offset, buf, count, type, status);
}
#else
#include <stdio.h>
int MPI_File_open(void *, const char *, int, void *, void **);
int MPI_File_write_at(void *, long, const void *, int, void *, void *);
int main(void) {
  void *fh = 0;
  char byte = 1;
  int first = MPI_File_open(0, "file", 9, 0, &fh), second = MPI_File_open(0, "file", 8, 0, &fh);
  int third = MPI_File_write_at(fh, 1L << 40, &byte, -5, 0, 0);
  if (first == 77 && second == 0 && third == -5) return 0;
  printf("got %d, %d and %d\n", first, second, third);
  return 1;
}
#endif
