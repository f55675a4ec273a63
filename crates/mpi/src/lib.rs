//! `libhayase_mpiio.so`: MPI-IO for every MPI program, an N-1 file written as N parts.
//!
//! Preloaded, it takes the `MPI_File_` calls of a program. What is to be a *container* (`hayase_container`)
//! is served here; every other call is passed on untouched. Compiled without any `mpi.h`: one binary for
//! MPICH and its relatives, Open MPI, and the ABI of MPI 5.
//!
//! - `exports`: the symbols, from one table; `real`: the originals (`linked`: of a program that is linked with its
//!   MPI statically); `abi`: what differs between libraries.
//! - `library`: what is asked of the MPI library, as safe calls; `pointers`: what programs hand over.
//! - `datatype`, `memory`, `view`, `transfer`: types, memory, file views, and moving bytes between them.
//! - `exchange`: collective reads in which processes read parts for each other.
//! - `selection`: which files; `flat`: what becomes a flat file at its close; `open_files`: those that are open; `shared_pointer`: their shared pointers.
//! - `calls`: what each call does; `error`: what it answers when it fails; `trace`: what people are told.
//!
//! **The handle** that a program gets is one of the MPI library's own, for the container's empty stub, which each
//! process opens alone: its error handler, info and Fortran form are the library's. Only what is about bytes
//! and about the other processes is not.
//!
//! **Collective calls** need no communication to write: each process writes its own part. To open, sync,
//! close and resize they agree on an epoch with a few words. To read what others wrote by another decomposition
//! they exchange, where that pays.
//!
//! Source: MPI 4.1, chapter 14; paper 001 (MPI-IO/Gfarm).

mod abi;
mod calls;
mod datatype;
mod error;
mod exchange;
mod exports;
mod flat;
mod library;
#[cfg(feature = "static")]
mod linked;
mod memory;
mod open_files;
mod pointers;
mod real;
mod selection;
mod shared_pointer;
mod trace;
mod transfer;
mod view;
