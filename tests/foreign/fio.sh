# fio verify (Debian): random writes of random sizes, then every block checked by its checksum, also
# on another node. Sourced by run.sh.

suite_fio() {
    command -v fio > /dev/null || { skip fio "not installed (apt install fio)"; return 0; }
    local name failed=0
    for name in $(files); do
        fio_one "$name" buffered --ioengine=psync --direct=0 || failed=1
        fio_one "$name" mmap --ioengine=mmap || failed=1
        fio_one "$name" direct --ioengine=psync --direct=1 || failed=1
    done
    return "$failed"
}

# fio_one NAME HOW OPTIONS..: writes and verifies on node 0, verifies again on node 2.
fio_one() {
    local name=$1 how=$2 dir=$shared/fio-$1 output=$scratch/fio-$1-$2.txt
    shift 2
    local file=$dir/$how
    on_node 0 mkdir -p "$dir"
    [ "$name" != striped ] || stripe "$dir" || return 1
    # Sized by the node that shall be its home: fio replaces a file that is too short.
    local home=0 before after
    [ "$name" != remote ] || home=1
    on_node "$home" truncate -s 32M "$file" || return 1
    before=$(on_node 0 stat -c %i "$file")
    local options=(--name=verify --filename="$file" --size=32m --rw=randwrite --bsrange=4k-128k
        --blockalign=4k --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fallocate=none --randseed=2)
    if on_node 0 timeout 300 fio "${options[@]}" "$@" --do_verify=1 --end_fsync=1 > "$output" 2>&1 &&
        on_node 2 timeout 300 fio "${options[@]}" --ioengine=psync --verify_only=1 >> "$output" 2>&1; then
        after=$(on_node 0 stat -c %i "$file")
        same_in_tier "$file" || { echo "FAILED fio $name, $how"; return 1; }
        [ "$before" = "$after" ] || { echo "FAILED fio $name, $how: it made another file"; return 1; }
        echo "ok fio $name, $how: written on node 0, verified on nodes 0 and 2"
    else
        echo "FAILED fio $name, $how"
        tail -n 25 "$output"
        return 1
    fi
}
