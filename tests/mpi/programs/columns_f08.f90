! Columns of a matrix, dealt out to processes, with the module mpi_f08: arrays of Fortran, descriptors.
!
!   columns_f08 FILE
program columns_f08
  use mpi_f08
  implicit none
  integer, parameter :: rows = 12
  integer :: rank, procs, i, j, ierror, columns, n, wrong, any_wrong
  integer :: sizes(2), subsizes(2), starts(2)
  integer(kind=MPI_OFFSET_KIND) :: displacement, length
  double precision, allocatable :: matrix(:, :), back(:, :)
  character(len=512) :: name
  type(MPI_File) :: fh
  type(MPI_Status) :: status
  type(MPI_Datatype) :: block

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, procs)
  call get_command_argument(1, name)
  columns = 3
  allocate (matrix(rows, columns), back(rows, columns))
  do j = 1, columns
    do i = 1, rows
      matrix(i, j) = 1000*rank + 100*j + i
    end do
  end do
  sizes = [rows*procs, columns]
  subsizes = [rows, columns]
  starts = [rows*rank, 0]
  call MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, &
                                MPI_DOUBLE_PRECISION, block)
  call MPI_Type_commit(block)
  call MPI_File_open(MPI_COMM_WORLD, trim(name), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierror)
  if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 2)
  displacement = 64
  call MPI_File_set_view(fh, displacement, MPI_DOUBLE_PRECISION, block, 'native', MPI_INFO_NULL)
  call MPI_File_write_all(fh, matrix, rows*columns, MPI_DOUBLE_PRECISION, status)
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, n)
  wrong = 0
  if (n /= rows*columns) wrong = 1
  call MPI_File_seek(fh, 0_MPI_OFFSET_KIND, MPI_SEEK_SET)
  back = 0
  call MPI_File_read_all(fh, back, rows*columns, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE)
  if (any(back /= matrix)) wrong = 2
  call MPI_File_sync(fh)
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_File_sync(fh)
  call MPI_File_get_size(fh, length)
  if (length /= 64 + 8_MPI_OFFSET_KIND*rows*columns*procs) wrong = 3
  call MPI_File_close(fh)
  if (wrong /= 0) print *, 'WRONG on rank', rank, ':', wrong
  call MPI_Allreduce(wrong, any_wrong, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
  call MPI_Type_free(block)
  call MPI_Finalize()
  if (any_wrong /= 0) stop 1
end program
