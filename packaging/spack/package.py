# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Hayase(Package):
    """A job's own file system on the disks of its nodes, in front of Lustre, S3 or any
    directory: started by one command, gone with the job."""

    # Nothing is published yet: `spack develop` or a clone at this path is built.
    homepage = "https://example.invalid/hayase"
    git = "https://example.invalid/hayase.git"

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    variant("mpiio", default=True, description="Build libhayase_mpiio.so, which programs preload")

    depends_on("c", type="build")  # ring, zstd, blake3
    depends_on("rust@1.95:", type="build")
    # Mounting as an ordinary user needs a set-user-id fusermount3, which Spack cannot install:
    # the system's own package fuse3 has it.

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        packages = ["-p", "hayase"] + (["-p", "hayase-mpi"] if spec.satisfies("+mpiio") else [])
        cargo("build", "--release", "--locked", "-j", str(make_jobs), *packages)
        mkdirp(prefix.bin)
        install("target/release/hayase", prefix.bin)
        if spec.satisfies("+mpiio"):
            mkdirp(prefix.lib.hayase)
            install("target/release/libhayase_mpiio.so", prefix.lib.hayase)
        hayase = Executable(prefix.bin.hayase)
        hayase("man", prefix.share.man.man1)
        mkdirp(bash_completion_path(prefix))
        with open(join_path(bash_completion_path(prefix), "hayase"), "w") as file:
            hayase("completions", "bash", output=file)
        mkdirp(zsh_completion_path(prefix))
        with open(join_path(zsh_completion_path(prefix), "_hayase"), "w") as file:
            hayase("completions", "zsh", output=file)
        mkdirp(fish_completion_path(prefix))
        with open(join_path(fish_completion_path(prefix), "hayase.fish"), "w") as file:
            hayase("completions", "fish", output=file)

    def setup_run_environment(self, env):
        if self.spec.satisfies("+mpiio"):
            env.set("HAYASE_MPIIO_LIBRARY", self.prefix.lib.hayase.join("libhayase_mpiio.so"))

    def test_version(self):
        """The command starts."""
        Executable(self.prefix.bin.hayase)("--version")
