#!/usr/bin/env bash
# Jobs inside allocations of a real Slurm: slurmctld, three slurmd and munged of Debian, each slurmd on a machine
# that is namespaces of this one, all started and ended by this test. Prints `ok`, `FAILED` and `SKIP` lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/prepare.sh
. tests/launch/machines.sh

obstacle=$(node_obstacles)
if [ -n "$obstacle" ]; then
  say "SKIP slurm: $(head -n 1 <<<"$obstacle")"
  exit 0
fi
if [ -n "$(missing_packages launch)" ]; then
  say "SKIP slurm: not installed: $(missing_packages launch | tr '\n' ' ')"
  exit 0
fi
binary=${HAYASE_BIN:-$(built hayase)} || exit 1

only=$*
failures=0
# try NAME: one test, the function of that name.
try() {
  local start=$SECONDS
  case " ${only:-$1} " in *" $1 "*) ;; *) return ;; esac
  if "$1" >"$work/out" 2>&1; then say "ok slurm_$1 ($((SECONDS - start)) s)"; else
    say "FAILED slurm_$1"
    tail -n 40 "$work/out"
    failures=$((failures + 1))
    slurm ctl scancel -u root
    sleep 3
  fi
}

nodes="n1 n2 n3"
machines_up --prepare prepare_someone ctl $nodes || die "no machines"
cp "$binary" "$work/opt/hayase"
strip --strip-debug "$work/opt/hayase" 2>/dev/null
mkdir "$work/opt/slurm" "$work/shared/keep"
chmod 1777 "$work/shared/keep"
cat >"$work/opt/slurm/slurm.conf" <<'CONFIG'
ClusterName=test
SlurmctldHost=ctl
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/run/slurm-state
SlurmdSpoolDir=/run/slurm-spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/slurmctld.log
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=30
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
Prolog=/opt/slurm/prolog.sh
Epilog=/opt/slurm/epilog.sh
BurstBufferType=burst_buffer/lua
NodeName=n[1-3] CPUs=2 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONFIG
cp examples/slurm/* "$work/opt/slurm/"
dd if=/dev/urandom of="$work/opt/slurm/munge.key" bs=1024 count=1 status=none
# slurm NAME CMD...: with our configuration.
slurm() {
  local name=$1
  shift
  at "$name" env SLURM_CONF=/opt/slurm/slurm.conf "$@"
}
for name in ctl $nodes; do
  at "$name" sh -c 'install -m 400 /opt/slurm/munge.key /run/munge/key && mkdir -p /run/slurm-state /run/slurm-spool &&
    chmod 755 /run/munge && exec munged --force --key-file=/run/munge/key --log-file=/run/munge/log \
      --pid-file=/run/munge/pid --seed-file=/run/munge/seed --socket=/run/munge/munge.socket.2' || die "no munged"
done
# The burst buffer starts its jobs over ssh.
ssh-keygen -q -t ed25519 -N '' -f "$work/opt/user_key"
chown 4711 "$work/opt/user_key"
ssh-keygen -q -t ed25519 -N '' -f "$work/opt/host_key"
printf 'HostKey /opt/host_key\nAuthorizedKeysFile /opt/user_key.pub\nStrictModes no\nUsePAM no\nPidFile none\n' >"$work/opt/sshd_config"
printf 'IdentityFile /opt/user_key\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n' >"$work/opt/ssh_config"
for name in $nodes; do at $name /usr/sbin/sshd -f /opt/sshd_config -E /root/sshd.log || die "no sshd"; done
at ctl env SLURM_CONF=/opt/slurm/slurm.conf HAYASE_SSH='ssh -F /opt/ssh_config' slurmctld -c || die "no slurmctld"
for name in $nodes; do slurm "$name" slurmd -c || die "no slurmd"; done
tries=300
until [ "$(slurm ctl sinfo -h -t idle -o %D 2>/dev/null)" = 3 ]; do
  sleep 0.1
  if [ $((tries -= 1)) = 0 ]; then
    slurm ctl sinfo -R
    slurm ctl sinfo
    for name in ctl $nodes; do at $name tail -n 20 /run/slurmctld.log /run/slurmd.log; done
    die "Slurm did not come up"
  fi
done

batch_user=0
# batch HOSTS SCRIPT OPTION...: runs a batch script that begins with $directive on that many hosts, waits, and shows what it printed.
batch() {
  local hosts=$1 script=$2
  shift 2
  rm -f "$work/shared/keep/out"
  printf '#!/bin/bash\n%s\nset -eu\nhayase() { /opt/hayase "$@"; }\nsizes="--storage /srv --shared 16M --local 16M"\n%s\n' "${directive:-}" "$script" >"$work/opt/script"
  chmod 755 "$work/opt/script"
  slurm ctl setpriv "--reuid=$batch_user" "--regid=$batch_user" --clear-groups timeout 90 sbatch --chdir=/ --wait -Q --nodes="$hosts" --ntasks-per-node=2 --output=/mnt/keep/out "$@" /opt/script
  local status=$?
  cat "$work/shared/keep/out"
  return $status
}
said() { grep -qF -- "$1" "$work/shared/keep/out" || { say "not said: $1"; return 1; }; }

# `up` in a batch script: every host of the allocation is a node; the script's own steps use it.
up_in_an_allocation() {
  batch 3 '
    hayase up $sizes --mount /tmp/areas
    hayase status
    srun --ntasks-per-node=1 --ntasks=3 sh -c "hostname >/tmp/areas/shared/\$(hostname)"
    srun --ntasks-per-node=1 --ntasks=3 sh -c "cat /tmp/areas/shared/*" | sort | uniq -c
    for node in 0 1 2; do hayase exec --node $node -- hostname; done
    echo through | hayase exec --node 2 -- cat
    hayase exec --node 1 -- sh -c "exit 7" || echo status $?
    hayase down
    echo done' || return 1
  said '      3 n1' && said '      3 n3' && said '3 (hosts)' && said through && said 'status 7' && said 'done' &&
    nothing_remains $nodes
}
# `run` in a batch script, on a job directory that all see, and with a status of its own.
run_in_an_allocation() {
  batch 2 '
    hayase run $sizes --job-dir /mnt/job -- sh -c "
      echo x >\$HAYASE_SHARED/x
      srun --overlap --ntasks-per-node=1 --ntasks=2 sh -c \"cat \$HAYASE_SHARED/x; hostname\"
      exit 5" || echo status $?'
  said 'n1' && said 'n2' && said 'status 5' && nothing_remains $nodes
}
# Killed by force, on the host where `up` was typed and on another, a node leaves its files to the next `up` there.
killed_nodes_are_cleared_by_the_next_job() {
  batch 2 'hayase up $sizes; echo up; hayase exec --node 1 -- sh -c "kill -9 \$(pidof hayase)" & sleep 1; kill -9 $(pidof hayase)' || true
  said up || return 1
  [ -n "$(remains n1)" ] && [ -n "$(remains n2)" ] || { say "nothing was left to clear"; return 1; }
  for name in n1 n2; do
    at $name hayase up --job next --storage /srv --shared 16M --local 16M && at $name hayase down || return 1
  done
  nothing_remains n1 n2
}
# Ended by scancel, without `down`: no process of it stays on any host, and what Slurm gave it no time to remove goes
# with the next `up` there.
scancelled_jobs_leave_no_process() {
  batch 2 'hayase up $sizes; echo up; scancel $SLURM_JOB_ID; sleep 300' || true
  said up || return 1
  local name tries=900
  for name in n1 n2; do
    while at $name pidof hayase >/dev/null; do
      sleep 0.1
      [ $((tries -= 1)) != 0 ] || { say "processes are left on $name"; return 1; }
    done
    at $name hayase up --job next --storage /srv --shared 16M --local 16M && at $name hayase down || return 1
  done
  nothing_remains n1 n2
}
# A host where the areas can not appear is named, and what had started is ended.
host_that_can_not_come_up_is_named() {
  at n2 mkdir -p /srv/areas/shared/in-the-way
  batch 3 'hayase up $sizes --mount /srv/areas'
  local status=$?
  at n2 rm -r /srv/areas
  [ $status != 0 ] && said 'node 1 did not come up: on n2: mount point /srv/areas/shared: it is not empty' &&
    nothing_remains $nodes
}
# Inside of a job of Slurm other launchers can still be asked for.
launcher_can_be_chosen() {
  batch 2 '
    hayase up $sizes --launcher local; hayase status; hayase down
    hayase up $sizes --nodes 2; hayase down
    hayase doctor' || return 1
  said '(this-machine)' && said 'SLURM_JOB_ID: job' && nothing_remains $nodes
}
# What the prolog made is the job's storage; when a node's processes are killed by force, its epilog cleans.
prolog_and_epilog_frame_a_job() {
  batch 2 '
    stat -c "%a %u %n" /srv/hayase-$SLURM_JOB_ID
    sizes="--storage /srv/hayase-$SLURM_JOB_ID --shared 16M --local 16M"
    hayase up $sizes --job slurm-$SLURM_JOB_ID
    hayase exec --node 1 -- sh -c "echo x >\$HAYASE_SHARED/x"
    hayase exec --node 1 -- sh -c "grep -c hayase-$SLURM_JOB_ID /proc/self/mountinfo"
    hayase exec --node 1 -- sh -c "kill -9 \$(pidof hayase)" || true' || true
  said '700 0 /srv/hayase-' && nothing_remains $nodes
}

# A job asks for the file system in its script, and finds it up; the script itself starts nothing.
burst_buffer_frames_a_job() {
  # Slurm gives root no burst buffer.
  local batch_user=4711 directive='#BB_LUA hayase storage=/srv shared=16M local=16M'
  batch 3 '
    echo "areas at $HAYASE_SHARED"
    srun --ntasks-per-node=1 --ntasks=3 sh -c "hostname >\$HAYASE_SHARED/\$(hostname); hostname >\$HAYASE_LOCAL/own"
    srun --ntasks-per-node=1 --ntasks=3 sh -c "cat \$HAYASE_SHARED/* \$HAYASE_LOCAL/*" | sort | uniq -c' || { slurm ctl squeue -l; slurm ctl scontrol show job; at ctl tail -n 30 /run/slurmctld.log; return 1; }
  said 'areas at /tmp/hayase-areas-' && said '      4 n1' && said '      4 n3' && nothing_remains $nodes || return 1
  # What can not be read is refused at submission.
  printf '#!/bin/sh\n#BB_LUA hayase shard=1G\n' >"$work/opt/script"
  ! slurm ctl timeout 30 sbatch --nodes=1 /opt/script 2>"$work/refused"
}
# held_with WHAT: waits until the job that sbatch has printed is held, and says why; then it goes.
held_with() {
  local id tries=200 why
  id=$(cat "$work/submitted")
  until why=$(slurm ctl scontrol show job "$id") && grep -qF -- "$1" <<<"$why"; do
    sleep 0.1
    if [ $((tries -= 1)) = 0 ]; then
      say "job $id: $why"
      slurm ctl scancel "$id"
      return 1
    fi
  done
  slurm ctl scancel "$id"
}
# A user calls a job as another user's is shown, and somebody else makes first what the burst buffer of a user would make.
burst_buffer_belongs_to_its_user() {
  local batch_user=4711 directive='#BB_LUA hayase storage=/srv shared=16M local=16M' id name
  batch 1 'stat -c "areas of %u" "$HAYASE_SHARED"' --job-name='x UserId=root(0)' || return 1
  said 'areas of 4711' && at ctl sh -c '[ -e /tmp/hayase-bb-4711 ] && [ ! -e /tmp/hayase-bb-0 ]' || return 1
  id=$(slurm ctl sbatch --hold --parsable --wrap=true) && slurm ctl scancel "$id" || return 1
  for name in $nodes; do
    at "$name" sh -c "for id in \$(seq $id $((id + 9))); do mkdir -m 777 /tmp/hayase-areas-\$id; chown 4712 /tmp/hayase-areas-\$id; done"
  done
  submit_as_user && held_with 'belongs to user 4712' || return 1
  for name in $nodes; do
    [ -z "$(at "$name" sh -c 'find /tmp/hayase-areas-* -mindepth 1' 2>&1)" ] || return 1
    at "$name" sh -c 'rmdir /tmp/hayase-areas-*'
  done
  at ctl sh -c 'rm -r /tmp/hayase-bb-4711 && mkdir -p /tmp/hayase-bb-4711/jobs && chown -R 4712 /tmp/hayase-bb-4711'
  submit_as_user && held_with 'belongs to another user' || return 1
  [ "$(at ctl find /tmp/hayase-bb-4711 -mindepth 1)" = /tmp/hayase-bb-4711/jobs ] && at ctl rm -r /tmp/hayase-bb-4711 &&
    nothing_remains $nodes
}
submit_as_user() {
  slurm ctl setpriv --reuid=4711 --regid=4711 --clear-groups \
    timeout 90 sbatch --parsable --chdir=/ --nodes=1 --output=/mnt/keep/out /opt/script >"$work/submitted"
}
# The script of the tutorial, as it stands.
tutorial_runs() {
  local page=docs/tutorials/slurm-job.md
  awk '/^```/ { inside = !inside; if (!inside && block ~ /^#!/) { printf "%s", block; exit } block = ""; next }
    inside { block = block $0 "\n" }' $page >"$work/opt/script"
  grep -q "hayase down" "$work/opt/script" || { say "no script in $page"; return 1; }
  rm -f "$work/shared/keep/out"
  slurm ctl env PATH="/opt:$PATH" timeout 90 sbatch --chdir=/ --wait -Q --output=/mnt/keep/out /opt/script
  local status=$?
  cat "$work/shared/keep/out"
  [ $status = 0 ] && [ "$(cat "$work/shared/keep/run7/result")" = "$(printf 'n1\nn2\nn3')" ] && nothing_remains $nodes
}

# block PAGE NUMBER: one of its blocks for Slurm.
block() { awk -v number="$2" '/^```/ { inside = !open && $0 == "```sh,needs-slurm" && ++count == number; open = !open; next } inside' "docs/$1"; }
# The scripts of the guide, as they stand, on as many hosts as there are.
guide_runs() {
  local number place=$work/shared/keep/guide page=docs/guide/slurm.md
  mkdir -p "$place"
  printf '#!/bin/sh\nhostname >>"$1"\n' >"$place/my_program"
  printf '#!/bin/sh\nset -e\nhostname >/tmp/areas/shared/steps\nsrun --ntasks-per-node=1 --ntasks=3 cat /tmp/areas/shared/steps\n' >"$place/all_my_steps"
  chmod 755 "$place/"*
  [ "$(grep -cx '```sh,needs-slurm' $page)" = 3 ] || { say "$page has other than 3 blocks"; return 1; }
  for number in 1 2 3; do
    { printf '#!/bin/bash\nset -eu\n' && block guide/slurm.md $number; } >"$work/opt/script"
    grep -q 'hayase ' "$work/opt/script" || { say "docs/guide/slurm.md has no block $number"; return 1; }
    rm -f "$work/shared/keep/out"
    # Where results go is where the job is submitted.
    slurm ctl env PATH="/opt:$PATH" sh -c 'cd /mnt/keep/guide && exec "$@"' sh \
      timeout 90 sbatch --wait -Q --nodes=3 --output=/mnt/keep/out /opt/script
    local status=$?
    cat "$work/shared/keep/out"
    [ $status = 0 ] && nothing_remains $nodes || { say "block $number"; return 1; }
    [ $number != 2 ] || [ "$(grep -cx n1 "$work/shared/keep/out")" = 3 ] || { say "block 2: its steps did not all read shared"; return 1; }
  done
  [ "$(sort -u "$place/output")" = "$(printf 'n1\nn2\nn3')" ]
}

# What the tutorial has people type, as it stands: before a job, and while one runs.
tutorial_is_typed() {
  local page=tutorials/slurm-job.md
  mkdir -p "$work/shared/keep/guide" "$work/shared/keep/run8"
  {
    printf '#!/bin/bash\nset -eu\n' && block $page 1
    echo 'hayase up --storage /srv --mount /tmp/areas --shared 64MiB --local 16MiB --tier /mnt/keep/run8'
    echo 'echo result >/tmp/areas/cache/result' && block $page 3 && echo 'hayase down'
  } >"$work/opt/script"
  grep -q 'hayase top' "$work/opt/script" || { say "docs/$page has no block 3"; return 1; }
  rm -f "$work/shared/keep/out"
  slurm ctl env PATH="/opt:$PATH" timeout 90 sbatch --chdir=/mnt/keep/guide --wait -Q --nodes=2 --output=/mnt/keep/out /opt/script
  local status=$?
  cat "$work/shared/keep/out"
  [ $status = 0 ] && said 'launcher: ' && grep -q '<html' "$work/shared/keep/guide/report.html" && nothing_remains $nodes
}

try up_in_an_allocation
try tutorial_runs
try tutorial_is_typed
try guide_runs
try run_in_an_allocation
try killed_nodes_are_cleared_by_the_next_job
try scancelled_jobs_leave_no_process
try host_that_can_not_come_up_is_named
try launcher_can_be_chosen
try prolog_and_epilog_frame_a_job
try burst_buffer_frames_a_job
try burst_buffer_belongs_to_its_user
[ "$failures" = 0 ]
