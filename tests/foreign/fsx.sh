# fsx (crate): random operations on one file against a model in memory. Sourced by run.sh.
#
# Three files: passthrough (made and used on node 0), remote (made on node 1, used on node 0) and
# striped over three servers. A seed is printed; FSX_SEED repeats it.

fsx_operations=${FSX_OPERATIONS:-5000}

suite_fsx() {
    local program name failed=0
    program=$(installed fsx) || return 1
    for name in $(files); do
        fsx_one "$program" "$name" || failed=1
    done
    return "$failed"
}

fsx_one() {
    local start=$SECONDS
    local program=$1 name=$2 dir=$shared/fsx-$2 seed=${FSX_SEED:-$((RANDOM * 32768 + RANDOM))}
    local config=$scratch/fsx-$name.toml output=$scratch/fsx-$name.txt
    on_node 0 mkdir -p "$dir"
    case $name in
        striped) stripe "$dir" || return 1 ;;
        remote) on_node 1 touch "$dir/file" ;;
    esac
    fsx_probe "$name" "$dir" || return 1
    fsx_config "$name" > "$config"
    # `timeout` inside: a hang of the file system must not become a hang of the run.
    if on_node 0 timeout 300 "$program" -f "$config" -N "$fsx_operations" -S "$seed" -P "$scratch" \
        "$dir/file" > "$output" 2>&1; then
        same_in_tier "$dir/file" || { echo "FAILED fsx $name: seed $seed"; return 1; }
        echo "ok fsx $name: $fsx_operations operations, seed $seed ($((SECONDS - start)) s)"
    else
        echo "FAILED fsx $name: seed $seed"
        tail -n 25 "$output"
        return 1
    fi
}

# fsx_listed NAME OPERATION: the operation is a documented difference for this file.
fsx_listed() { differences fsx | grep -qx -e "$1::$2"; }

# weight NAME OPERATION N: N, or 0 where the difference is documented.
fsx_weight() {
    if fsx_listed "$1" "$2"; then echo "$2 = 0"; else echo "$2 = $3"; fi
}

# Operations that are switched off must really be refused: else the difference is none.
fsx_probe() {
    local name=$1 file=$2/probe operation probe
    on_node 0 dd if=/dev/zero of="$file" bs=64K count=4 status=none || return 1
    for operation in punch_hole posix_fallocate; do
        fsx_listed "$name" "$operation" || continue
        probe=(fallocate -l 262144 "$file")
        [ $operation = punch_hole ] && probe=(fallocate -p -o 4096 -l 65536 "$file")
        if on_node 0 "${probe[@]}" 2> /dev/null; then
            echo "FAILED fsx $name: $operation is listed as a difference, but works"
            return 1
        fi
    done
    on_node 0 rm "$file"
}

fsx_config() {
    echo "flen = 524288"
    echo "[opsize]"
    echo "max = 131072"
    echo "[weights]"
    local operation
    for operation in read write mapread mapwrite; do fsx_weight "$1" $operation 10; done
    for operation in truncate copy_file_range sendfile punch_hole; do fsx_weight "$1" $operation 3; done
    for operation in close_open invalidate fsync fdatasync posix_fallocate posix_fadvise; do
        fsx_weight "$1" $operation 1
    done
}
