#!/usr/bin/env bash
# Installs this build into a prefix of its own and uses it as a stranger would.
#   install_test.sh BUILD_DIRECTORY SOURCE_DIRECTORY
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
check() {
  if "${@:2}" > "$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    echo "install: FAILED: $1"
    cat "$work/log"
    exit 1
  fi
}

check "cmake --install" cmake --install "$build" --prefix "$work/prefix"
pc=$(find "$work/prefix" -name kvbm.pc)
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir kvbm)
export LD_LIBRARY_PATH=$libdir
check "every public header" diff <(cd "$source/include" && ls) <(cd "$(pkg-config --variable=includedir kvbm)" && ls ./*.h | sed 's|^\./||')
# shellcheck disable=SC2046
check "cc with pkg-config" cc $(pkg-config --cflags kvbm) "$source/tests/examples/example.c" $(pkg-config --libs kvbm) -o "$work/example"
check "the compiled example" "$work/example"
spaced="$work/a prefix"
check "cmake --install into a prefix with a space" cmake --install "$build" --prefix "$spaced"
# As build systems do, which take the words apart by the shell's rules.
in_spaced() {
  local flags
  flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$spaced" -name kvbm.pc)") pkg-config --cflags --libs kvbm) &&
    eval "cc \"$source/tests/examples/example.c\" $flags -o \"$work/spaced\""
}
check "cc with pkg-config in a prefix with a space" in_spaced
rm -rf "$spaced"
# shellcheck disable=SC2046
check "c++ with pkg-config" c++ -std=c++17 $(pkg-config --cflags kvbm) "$source/bindings/cpp/examples/example.cc" $(pkg-config --libs kvbm) -o "$work/example_cpp"
check "the compiled C++ example" "$work/example_cpp"
check "find_package" cmake -G Ninja -S "$source/tests/examples/find_package" -B "$work/found" -DCMAKE_PREFIX_PATH="$work/prefix"
check "building with kvbm::kvbm" cmake --build "$work/found"
check "the example of find_package" "$work/found/example"
check "the installed command" "$work/prefix/bin/kvbm" size --preset qwen3-8b --tokens 1000 --json
check "the man page" grep -q capacity "$(find "$work/prefix" -name 'kvbm.1*' | head -1)"
unit=$work/prefix/lib/systemd/system/kvbm-node.service
check "the unit starts the installed command" grep -q "^ExecStart=$work/prefix/bin/kvbm node " "$unit"
if command -v systemd-analyze > /dev/null; then
  check "systemd understands the unit" systemd-analyze verify --man=no "$unit"
else
  echo "install: skipped systemd-analyze verify: no systemd here"
fi
check "bash completion" grep -q -e --capacity-blocks "$(find "$work/prefix" -path '*bash-completion*' -type f | head -1)"
needed=$(readelf -d "$libdir/libkvbm.so" | awk '/NEEDED/ {gsub(/[][]/, "", $5); print $5}' | sort | tr '\n' ' ')
check "nothing but libc and the loader is needed (found: $needed)" \
  test -z "$(echo "$needed" | tr ' ' '\n' | grep -vE '^(libc\.so\.6|ld-linux.*|)$' || true)"
# The UCX module, where it was built: found by the installed command, and not needed by it.
for store in "$libdir"/kvbm/libkvbm_store_*.so; do
  [ -e "$store" ] || continue
  check "${store##*/} exports its table alone" test "$(nm -D --defined-only "$store" | awk '{print $3}')" = kvbm_store_table
done
if [ -e "$libdir/kvbm/libkvbm_ucx.so" ]; then
  check "the module exports its entry alone" test "$(nm -D --defined-only "$libdir/kvbm/libkvbm_ucx.so" | awk '{print $3}')" = kvbm_transport_entry
  # grep reads to the end: with -q it would leave early, and the command behind the pipe would fail by SIGPIPE.
  finds_ucx() { env -u KVBM_UCX_PATH "$work/prefix/bin/kvbm" doctor --dir "$work" --json | grep '"UCX transports"' > /dev/null; }
  check "the installed command finds the installed module" finds_ucx
  mv "$libdir/kvbm" "$libdir/elsewhere"
  without_ucx() { "$work/prefix/bin/kvbm" doctor --dir "$work" --json | grep 'transport unavailable: no module at' > /dev/null; }
  check "the installed command without the module" without_ucx
  mv "$libdir/elsewhere" "$libdir/kvbm"
else
  echo "install: skipped the UCX module: it was not built"
fi
# Both need at most the glibc that the package declares; abi.imports pins the library lower.
declared=$(sed -n 's/^set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= \(.*\))")$/\1/p' "$build/CPackConfig.cmake")
glibc_floor() {
  local found
  found=$(objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
  echo "install: ${1##*/} needs $found"
  check "${1##*/} needs at most glibc $2 (found $found)" test "$(printf '%s\n' "$found" "GLIBC_$2" | sort -V | tail -1)" = "GLIBC_$2"
}
glibc_floor "$libdir/libkvbm.so" "$declared"
glibc_floor "$work/prefix/bin/kvbm" "$declared"

# The package, put by dpkg into a system root of its own, so that this machine stays as it is.
if command -v dpkg > /dev/null && command -v cpack > /dev/null; then
  check "cpack" cpack --config "$build/CPackConfig.cmake" -B "$work/package"
  deb=$(find "$work/package" -maxdepth 1 -name 'libkvbm_*.deb')
  root=$work/root
  mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/log"
  : > "$root/var/lib/dpkg/status"
  unpack=(dpkg --root="$root" --log=/dev/null --force-not-root --force-depends --force-script-chrootless -i "$deb")
  check "dpkg installs ${deb##*/}" "${unpack[@]}"
  check "dpkg knows it" dpkg --root="$root" -s libkvbm
  depends=$(dpkg-deb -f "$deb" Depends)
  check "what the command is linked with is named (Depends: $depends)" test -z "$(readelf -d "$root/usr/bin/kvbm" |
    awk '/NEEDED/ {gsub(/[][]/, "", $5); print $5}' | grep -vE '^(lib[cm]\.so\.6|ld-linux.*|libkvbm\.so.*)$' || true)"
  recommends=
  if [ -e "$libdir/kvbm/libkvbm_ucx.so" ]; then recommends="libucx0 (>= 1.13)"; fi
  if [ -e "$libdir/kvbm/libkvbm_store_s3.so" ]; then recommends+="${recommends:+, }libcurl4 (>= 7.81), libssl3"; fi
  check "what modules need is recommended and no more" test "$(dpkg-deb -f "$deb" Recommends)" = "$recommends"
  # pkg-config 0.29 (Ubuntu 22.04) leaves -I/usr/include out before it puts the root in front.
  export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
  PKG_CONFIG_PATH=$(dirname "$(find "$root" -name kvbm.pc)")
  export LD_LIBRARY_PATH=${PKG_CONFIG_PATH%/pkgconfig}
  # shellcheck disable=SC2046
  check "cc with the package" cc $(pkg-config --cflags kvbm) "$source/tests/examples/example.c" $(pkg-config --libs kvbm) -o "$work/packaged"
  check "the example with the package" "$work/packaged"
  check "the packaged unit starts the packaged command" grep -q "^ExecStart=/usr/bin/kvbm node " "$root/usr/lib/systemd/system/kvbm-node.service"
  check "the packaged command" "$root/usr/bin/kvbm" size --preset qwen3-8b --tokens 1000 --json
  check "dpkg removes it" dpkg --root="$root" --log=/dev/null --force-not-root --force-script-chrootless -r libkvbm
  check "nothing is left" test ! -e "$root/usr/bin/kvbm"
else
  echo "install: skipped the .deb: no dpkg or cpack here"
fi
echo "$passed passed, 0 failed"
