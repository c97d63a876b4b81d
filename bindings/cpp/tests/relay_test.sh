#!/usr/bin/env bash
# Passes blocks between processes of the relay: over a disk, over the loopback, and not where there are none.
#   relay_test.sh RELAY_PROGRAM
set -euo pipefail
relay=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "relay: FAILED: $1"
  exit 1
}
"$relay" store --seed 5 --blocks 12 --tier "$work/tier" host.capacity=4MiB < /dev/null > "$work/out"
[ "$(tail -1 "$work/out")" = ready ] || fail "no ready line"
[ "$("$relay" fetch --seed 5 --blocks 12 --tier "$work/tier" host.capacity=4MiB)" = "verified 12 of 12" ] || fail "over a disk"

mkfifo "$work/in"
"$relay" store --seed 6 --blocks 8 host.capacity=4MiB node.listen=127.0.0.1:0 < "$work/in" > "$work/out" &
exec 9> "$work/in"
for _ in $(seq 200); do
  grep -q ready "$work/out" && break
  sleep 0.05
done
address=$(awk '/^node/ {print $2}' "$work/out")
[ "$("$relay" fetch --seed 6 --blocks 8 host.capacity=4MiB node.peers="$address")" = "verified 8 of 8" ] || fail "over the loopback"
exec 9>&-
wait
"$relay" store --blocks 0 > "$work/out" 2>&1 && fail "no blocks"
"$relay" fetch --seed 1 --blocks 1 nonsense=1 > "$work/out" 2>&1 && fail "nonsense"
grep -q KVBM_ERR_CONFIG "$work/out" || fail "the error has no name"
echo "relay: passed"
