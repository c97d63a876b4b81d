# For the scripts of this folder: finds the tools, and builds what is older than its sources.
# SPDX-License-Identifier: Apache-2.0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
prefix=${KVBM_PREFIX:-$root/build/install}
# The library takes KVBM_* from the environment for its settings, and refuses what it does not know.
unset KVBM_PREFIX

skip() {
  echo "skipped: $1"
  exit 77
}

command -v java >/dev/null && command -v javac >/dev/null || skip "no JDK; Debian: apt install openjdk-17-jdk-headless"
release=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/ *java.specification.version = //p')
[ "${release%%.*}" -ge 17 ] || skip "Java $release is older than 17; Debian: apt install openjdk-17-jdk-headless"
command -v mvn >/dev/null || skip "no Maven; Debian: apt install maven"
command -v swig >/dev/null || command -v swig4.0 >/dev/null || skip "no SWIG; Debian: apt install swig"
command -v cmake >/dev/null || skip "no CMake; Debian: apt install cmake"
[ -e "$prefix/include/kvbm.h" ] || skip "no libkvbm in $prefix; build and install it, or set KVBM_PREFIX"

maven() {
  (cd "$here" && mvn -B -ntp -Dstyle.color=never "-Dkvbm.prefix=$prefix" "$@")
}

# Compiles programs and tests unless they are newer than all they are made from.
build() {
  mkdir -p "$here/target"
  exec 9>"$here/target/.lock"
  flock 9
  local stamp=$here/target/.built
  if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$prefix" ] || [ -n "$(find "$here/src" "$here/pom.xml" \
    "$here/../swig" "$prefix"/include/kvbm*.h "$(readlink -f "$prefix/lib/libkvbm.so")" -newer "$stamp" -print -quit)" ]; then
    maven -q test-compile >"$here/target/build.log" 2>&1 || {
      cat "$here/target/build.log" >&2
      exit 1
    }
    echo "$prefix" >"$stamp"
  fi
  exec 9>&-
}

# Runs a program of the test sources, with the options of the JVM in the array `jvm`.
jvm=(-XX:+UseSerialGC)
program() {
  local name=$1
  shift
  exec java "${jvm[@]}" -cp "$here/target/classes:$here/target/test-classes" \
    "io.github.kvbm.libkvbm.programs.$name" "$@"
}
