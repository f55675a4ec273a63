# What each real S3 server is asked (sourced, not run): needs $work and scripts/prepare.sh.
#
#   checks_build            sets check and hayase: what asks, as it was built
#   checks_endpoint URL     tells both where the server is; user test/testtest
#   try NAME CMD...         one test; counts in $failures
#   staged KIND URL CMD...  a tree goes out to URL and comes back the same by `hayase stage`, and is verified there;
#                           KIND is loose, packed or sealed, CMD what runs the program (env)

failures=0

checks_build() { check=$(built examples/s3_check) && hayase=$(built hayase); }

checks_endpoint() {
  export AWS_ENDPOINT_URL=$1 AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest
  export HAYASE_RUNTIME_DIR=$work/run
  unset AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE
}

try() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$work/out" 2>&1; then say "ok s3_$name ($((SECONDS - start)) s)"; else
    say "FAILED s3_$name"
    tail -n 20 "$work/out"
    failures=$((failures + 1))
  fi
}

# A tree with what is easily lost: odd names, empty files and directories, links, modes, old times, one large file.
staged_tree() {
  local n
  mkdir -p "$1/deep/er/empty" "$1/many" || return 1
  for n in $(seq 300); do head -c $((n * 37)) /dev/urandom >"$1/many/file $n"; done
  head -c 40000000 /dev/urandom >"$1/large"
  : >"$1/deep/nothing"
  printf 'x' >"$1/deep/ü % + ?&=#"
  ln -s ../large "$1/deep/link"
  chmod 750 "$1/deep/nothing"
  touch -d '2001-02-03 04:05:06.789' "$1/deep/nothing"
}

# Times of links, and that of the tree's own directory, are not kept.
staged_names() {
  (cd "$1" && find . -mindepth 1 \( -type l -printf '%P -> %l\n' \) -o -printf '%P %y %m %T@\n' | sort)
}

staged() {
  local kind=$1 url=$2 pack=16MiB key=() back=$work/back
  shift 2
  [ -d "$work/tree" ] || staged_tree "$work/tree" || return 1
  [ "$kind" != loose ] || pack=none
  if [ "$kind" = sealed ]; then
    [ -e "$work/key" ] || head -c 32 /dev/urandom >"$work/key"
    key=(--key-file "$work/key")
  fi
  rm -rf "$back"
  "$@" "$hayase" stage out "$work/tree" "$url" --pack $pack "${key[@]}" &&
    "$@" "$hayase" stage verify "$work/tree" "$url" "${key[@]}" &&
    "$@" "$hayase" stage in "$url" "$back" "${key[@]}" &&
    diff -r --no-dereference "$work/tree" "$back" &&
    diff <(staged_names "$work/tree") <(staged_names "$back")
}
