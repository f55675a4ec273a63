//! `libhayase_mpiio.so`: MPI-IO for every MPI program, an N-1 file written as N parts.
//!
//! Preloaded, it takes the `MPI_File_` calls of a program. What is to be a *container* (`hayase_container`)
//! is served here; every other call is passed on untouched. Compiled without any `mpi.h`: one binary for
//! MPICH and its relatives, Open MPI, and the ABI of MPI 5.
//!
//! From the bottom up; a room imports those above it in this list, never those below:
//!
//! - `abi`: what differs between libraries; `pointers`: what programs hand over; `stderr`: lines for people; `trace`: counts
//!   of calls; `entered`: whose call it is.
//! - `real`: the originals (`linked`: of a program that is linked with its MPI statically); `error`: what a call answers
//!   when it fails.
//! - `library`: what is asked of the MPI library, as safe calls; `handlers`: the program's error handlers.
//! - `datatype`: what a type selects, by its handle; `memory`: the program's memory; `view`: file views.
//! - `shared_pointer`, `shared_bytes`: what the processes of a file share; `exchange`: what they read for each other;
//!   `flat`: what becomes a flat file at its close. `selection`: which files become containers.
//! - `open_files`: those that are open, each made of the rooms before.
//! - `transfer`: moving bytes between memory and a file; `collective_read`: reads in which processes read for each other.
//! - `calls`: what each call does; `exports`: the symbols, from one table.
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
mod collective_read;
mod datatype;
mod entered;
mod error;
mod exchange;
mod exports;
mod flat;
mod handlers;
mod library;
#[cfg(feature = "static")]
mod linked;
mod memory;
mod open_files;
mod pointers;
mod real;
mod selection;
mod shared_bytes;
mod shared_pointer;
mod stderr;
mod trace;
mod transfer;
mod view;
