# What pages expect to find (sourced on the machine of a page, in its shell): `before N` is called before block N of the page
# and mark that machine.sh names.

before() {
  echo "block $1"
  if declare -F "before_${page}_${mark//-/_}_$1" >/dev/null; then "before_${page}_${mark//-/_}_$1"; fi
}

# disk DIR: a directory on a disk that is larger than any page asks for; its file has holes.
disk() {
  mkdir -p "$1"
  truncate -s 2T /opt/documents/disk/image
  mkfs.xfs -q -l size=64m /opt/documents/disk/image
  mount -o loop /opt/documents/disk/image "$1"
}

# The MPI of the page under its usual names, and the program that the page runs.
mpi() { # mpich|openmpi NAME
  ln -sf "$(command -v "mpiexec.$1")" /usr/bin/mpiexec
  "mpicc.$1" -O1 -o "$2" /opt/documents/program.c
}

# A job on three simulated nodes, as the pages begin.
three_nodes() { hayase up --nodes 3 --storage /opt/documents/disk --mount /mnt/job --shared 256MiB --local 64MiB; }

before_README_needs_mpi_1() {
  disk /local/scratch
  mkdir -p /lustre/me/run7
  mpi mpich model
}

before_guide_mpi_needs_mpi_1() {
  mpi mpich program
  three_nodes
}

before_guide_mpi_needs_openmpi_1() {
  # It refuses root unless it is asked twice.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mpi openmpi program
  three_nodes
}

before_guide_mpi_io_needs_mpi_1() {
  mpi mpich program
  three_nodes
  mkdir -p /scratch/run7
}

before_guide_containers_needs_mpi_1() {
  mpi mpich program
  mkdir -p /scratch/run7 /archive
  LIB=/opt/documents/bin/libhayase_mpiio.so
  mpiexec -n 4 ./program reference
}

before_README_needs_paths_1() {
  disk /local/scratch
  mkdir -p /project src
  printf 'all:\n\tmkdir -p out\n\tfor i in 1 2 3 4; do echo $$i >out/$$i; done\n' >src/Makefile
  tar -cf src.tar src
}

before_guide_simulated_nodes_needs_paths_1() { mkdir -p /var/tmp/storage /mnt/job; }

# The S3 server of the suite is at $AWS_ENDPOINT_URL, and at https://s3.example.org; its bucket is empty for each page.
s3() {
  local port=${AWS_ENDPOINT_URL##*:} tries=100
  echo '127.0.0.1 s3.example.org' >>/etc/hosts
  (
    cd /opt/documents
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=documents -keyout authority.key -out authority.pem
    openssl req -newkey rsa:2048 -nodes -subj /CN=s3.example.org -keyout key.pem -out request.pem
    openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
      -extfile <(echo subjectAltName=DNS:s3.example.org) -out certificate.pem
  ) 2>/dev/null
  python3 /opt/documents/tls.py /opt/documents/certificate.pem /opt/documents/key.pem "${port%/}" &
  until (exec 3<>/dev/tcp/127.0.0.1/443) 2>/dev/null; do
    [ $((tries -= 1)) != 0 ] || return 1
    sleep 0.1
  done
  export AWS_CA_BUNDLE=/opt/documents/authority.pem
}

# tree DIR: some files of different sizes.
tree() {
  mkdir -p "$1/train" "$1/test"
  for i in $(seq 20); do
    head -c $((i * 3000)) /dev/urandom >"$1/train/$i"
    echo "$i" >"$1/test/$i"
  done
}

before_README_needs_s3_1() {
  disk /local/scratch
  s3
  tree images
  hayase stage out images s3://bucket/images
  printf '#!/bin/sh\nset -e\n[ "$(ls "$HAYASE_SHARED/images/train" | wc -l)" = 20 ]\nmkdir "$HAYASE_SHARED/model"\necho weights >"$HAYASE_SHARED/model/weights"\n' >train.sh
  chmod 755 train.sh
}

before_guide_cache_needs_s3_1() {
  disk /local/scratch
  export TMPDIR=/local/scratch
}

before_guide_stage_needs_s3_1() {
  disk /local/scratch
  export TMPDIR=/local/scratch
  s3
  tree /project/dataset
  hayase up --mount /mnt/job --shared 1GiB --local 64MiB
  tree /mnt/job/shared/results
}

before_guide_stage_needs_s3_2() {
  ID=$AWS_ACCESS_KEY_ID SECRET=$AWS_SECRET_ACCESS_KEY
  tree results
  hayase stage out /project/dataset s3://bucket/dataset
}

before_guide_stage_needs_s3_4() { tree logs; }

before_guide_stage_needs_s3_5() { mkdir -p /mnt/results; }

# Nodes with networks of their own do not reach the server at the loopback address of this machine.
before_guide_stage_needs_s3_7() {
  hayase down
  hayase stage out /project/dataset s3://bucket/data
  hayase up --nodes 4 --no-namespaces --shared 256MiB --local 64MiB
  hayase stage in /project/dataset shared/results --spread shard
}

before_guide_stage_needs_s3_8() {
  hayase down
  printf '#!/bin/sh\nset -e\nmkdir "$HAYASE_SHARED/results"\necho weights >"$HAYASE_SHARED/results/weights"\n' >train
  chmod 755 train
}

# On a node of a Gfarm, as $GFARM_CONFIG_FILE says.
before_guide_gfarm_needs_gfarm_1() {
  disk /local/scratch
  export TMPDIR=/local/scratch HAYASE_SHARED=/mnt/job/shared
  gfmkdir -p /home/me/run1
  tree input
  hayase stage out input gfarm:///home/me/input
  hayase up --mount /mnt/job --shared 1GiB --local 64MiB
  tree "$HAYASE_SHARED/results"
}

before_guide_gfarm_needs_gfarm_2() { mkdir -p /mnt/gfarm; }

before_guide_gfarm_needs_gfarm_3() {
  mpi mpich program
  export LD_LIBRARY_PATH=/opt/documents/bin
}

before_guide_cache_needs_gfarm_1() {
  disk /local/scratch
  export TMPDIR=/local/scratch
  gfmkdir -p /home/me/run7
}
