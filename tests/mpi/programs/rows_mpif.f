C     Interleaved records by explicit offsets and by a shared pointer, with mpif.h.
C
C       rows_mpif FILE
      program rows
      implicit none
      include 'mpif.h'
      integer rank, procs, ierror, fh, i, k, wrong, anywr, n
      integer status(MPI_STATUS_SIZE), words(10), back(10)
      integer (kind=MPI_OFFSET_KIND) place
      character*512 name
      call MPI_INIT(ierror)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierror)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, procs, ierror)
      call getarg(1, name)
      call MPI_FILE_OPEN(MPI_COMM_WORLD, trim(name),
     &  MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierror)
      if (ierror .ne. MPI_SUCCESS) then
        call MPI_ABORT(MPI_COMM_WORLD, 2, ierror)
      end if
      wrong = 0
      do k = 0, 19
        do i = 1, 10
          words(i) = rank * 10000 + k * 100 + i
        end do
        place = (k * procs + rank) * 40
        call MPI_FILE_WRITE_AT(fh, place, words, 10, MPI_INTEGER,
     &    status, ierror)
        call MPI_GET_COUNT(status, MPI_INTEGER, n, ierror)
        if (n .ne. 10) wrong = 1
      end do
      place = (19 * procs + rank) * 40
      call MPI_FILE_READ_AT(fh, place, back, 10, MPI_INTEGER,
     &  MPI_STATUS_IGNORE, ierror)
      do i = 1, 10
        if (back(i) .ne. words(i)) wrong = 2
      end do
      place = 20 * procs * 40
      call MPI_FILE_SEEK_SHARED(fh, place, MPI_SEEK_SET, ierror)
      words(1) = rank
      call MPI_FILE_WRITE_ORDERED(fh, words, 1, MPI_INTEGER, status,
     &  ierror)
      call MPI_FILE_CLOSE(fh, ierror)
      if (wrong .ne. 0) print *, 'WRONG on rank', rank, wrong
      call MPI_ALLREDUCE(wrong, anywr, 1, MPI_INTEGER, MPI_MAX,
     &  MPI_COMM_WORLD, ierror)
      call MPI_FINALIZE(ierror)
      if (anywr .ne. 0) stop 1
      end
