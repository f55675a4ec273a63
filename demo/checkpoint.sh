# Scenes with an MPI program (sourced by demo.sh): one checkpoint, and a program that computes and writes in turn.
#
# demo/model.c runs twice: straight to the shared storage, by the MPI library alone, and into `cache` by `hayase exec --mpiio`,
# from where the servers bring the files to the same storage. The files there are compared byte by byte.

model_seconds=90   # MPICH waits for ever for a rank that was killed

# in_time CMD...: with a time limit, in the process group of this shell, so that Ctrl-C ends it.
in_time() { timeout --foreground $model_seconds "$@" </dev/null; }

# model_without DIRECTORY MIB ROUNDS SECONDS: by the MPI library alone. Debian's mpiexec finds the three nodes in its
# environment.
model_without() { in_time "$hayase" exec -- mpiexec.mpich -n $((3 * ranks)) "$job_work/model" "$@"; }

# model_with DIRECTORY MIB ROUNDS SECONDS: by Hayase.
model_with() { in_time "$hayase" exec --mpiio -- mpiexec.mpich -n $((3 * ranks)) "$job_work/model" "$@"; }

# model NAME WAY ARG...: runs it, keeps what it printed in $out/logs/NAME-WAY.times; waits until the shared storage has all,
# and keeps when that was, in seconds since the model began, in $everything, and the end of the model in $ended.
model() {
  local times=$out/logs/$1-$2.times log=$out/logs/$1.log way=$2 begin
  shift 2
  "model_$way" "$@" >"$times" 2>>"$log" || { tail -n 5 "$times" "$log"; die "the MPI program failed ($way)"; }
  [ "$way" = without ] || must "$hayase" flush --timeout $model_seconds >>"$log" 2>&1
  begin=$(awk '$1 == "begin" { print $2 }' "$times")
  everything=$(calc "$(seconds) - $begin" %.2f)
  ended=$(awk '$1 != "begin" { end = $3 } END { printf "%.2f", end }' "$times")
  # The MPI library alone ends with the file on the shared storage.
  [ "$way" != without ] || everything=$ended
}

# same_files A B: all of A are in B, with the same bytes.
same_files() { (cd "$1" && for file in *; do cmp "$file" "$2/$file" || exit 1; done); }

demo_checkpoint() {
  local mib=$checkpoint_mib total=$((3 * ranks * checkpoint_mib)) without=- without_all=- with
  scene checkpoint "A checkpoint: $((3 * ranks)) MPI ranks on three nodes write one file of $total MiB" \
    "A real MPICH program, not changed. Without Hayase it writes to the shared storage; with it into \`cache\` (\`hayase exec --mpiio\`)."
  on 0 mkdir "$(area 0 cache)/checkpoint"
  if [ -n "$limited" ]; then
    mkdir "$storage/stock"
    model checkpoint without "$storage/stock" "$mib" 1 0
    without=$(calc "$ended" %.2f) without_all=$everything
  fi
  model checkpoint with "$(area 0 cache)/checkpoint" "$mib" 1 0
  with=$(calc "$ended" %.2f)
  compare checkpoint "until the program may continue" "$without" "$with" s lower "stock MPI"
  compare checkpoint "until the shared storage has everything" "$without_all" "$everything" s lower "stock MPI"
  verified checkpoint
}

# verified NAME: the files that the model wrote in that directory of `cache` are on the shared storage.
verified() {
  if [ -n "$limited" ]; then
    must same_files "$storage/stock" "$storage/$1"
    check "$1" "what is on the shared storage has the bytes that stock MPI wrote"
    rm -r "$storage/stock"
  else
    logged "$1" "$hayase" flush --verify
    check "$1" "what is on the shared storage was read back and compared (flush --verify)"
  fi
}

# lanes ID WAY NAME WATCHED LONGEST: lines of time of a run of the model.
lanes() {
  local id=$1 way=$2 name=$3 watched=$4 longest=$5 times=$out/logs/rounds-$2.times begin
  begin=$(awk '$1 == "begin" { print $2 }' "$times")
  figure lane "$id" "$name: program" "$longest"
  awk -v id="$id" -v lane="$name: program" '$1 != "begin" { printf "span\t%s\t%s\t%s\t%s\t%s\n", id, lane, $1, $2, $3 }' \
    "$times" >>"$figures"
  [ -s "$watched" ] || return 0
  figure lane "$id" "$name: storage" "$longest"
  # Busy while at least an eighth of its speed arrives.
  awk -v id="$id" -v lane="$name: storage" -v zero="$begin" -v least=$((storage_mib << 17)) '
    function flush() { if (busy) printf "span\t%s\t%s\twrites\t%.2f\t%.2f\n", id, lane, from, till }
    NR > 1 { now = ($2 - bytes) / ($1 - time) >= least
      if (now && !busy) from = time - zero
      if (!now && busy) flush()
      if (now) till = $1 - zero
      busy = now }
    { time = $1; bytes = $2 }
    END { flush() }' "$watched" >>"$figures"
}

demo_rounds() {
  local mib=$round_mib rounds=3 pause=3 total=$((3 * ranks * round_mib)) without=- without_all=- longest=0
  scene rounds "Write-behind: the same program computes $pause s and writes $total MiB, $rounds times" \
    "With Hayase the nodes bring a checkpoint to the shared storage while the program computes the next one."
  on 0 mkdir "$(area 0 cache)/rounds"
  if [ -n "$limited" ]; then
    mkdir "$storage/stock"
    watch_begin "$out/logs/rounds-arrived-without"
    model rounds without "$storage/stock" "$mib" $rounds $pause
    watch_end
    without=$ended without_all=$everything longest=$everything
  fi
  watch_begin "$out/logs/rounds-arrived-with"
  model rounds with "$(area 0 cache)/rounds" "$mib" $rounds $pause
  watch_end
  longest=$(calc "$longest > $everything ? $longest : $everything" %.2f)
  compare rounds "until the program ends" "$without" "$ended" s lower "stock MPI"
  compare rounds "until the shared storage has everything" "$without_all" "$everything" s lower "stock MPI"
  [ -z "$limited" ] || lanes rounds without "stock MPI" "$out/logs/rounds-arrived-without" "$longest"
  lanes rounds with "Hayase" "$out/logs/rounds-arrived-with" "$longest"
  verified rounds
}
