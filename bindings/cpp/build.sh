# Common part of the scripts of this folder; sourced. Sets `root` and `prefix`; kvbm_build builds targets.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
prefix=$(cd "${KVBM_PREFIX:-$root/build/install}" 2> /dev/null && pwd) || {
  echo "skipped: no libkvbm in ${KVBM_PREFIX:-build/install}: cmake --preset release, build it, and cmake --install it there"
  exit 77
}
# libkvbm refuses KVBM_* variables that it does not know, and takes settings from the others.
for name in $(compgen -e KVBM_ || true); do unset "$name"; done

kvbm_needs() { # COMMAND PACKAGE
  command -v "$1" > /dev/null && return
  echo "skipped: no $1: install $2"
  exit 77
}

# kvbm_build FOLDER CONFIGURE_ARGUMENTS... -- TARGETS...
kvbm_build() {
  local folder=$here/$1 arguments=() log
  shift
  while [ "$1" != -- ]; do arguments+=("$1") && shift; done
  shift
  kvbm_needs cmake cmake
  kvbm_needs ninja ninja-build
  kvbm_needs c++ g++
  log=$(mktemp)
  if ! { cmake -G Ninja -U kvbm_DIR -S "$here" -B "$folder" -DCMAKE_PREFIX_PATH="$prefix" "${arguments[@]}" &&
    cmake --build "$folder" -j2 --target "$@"; } > "$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
