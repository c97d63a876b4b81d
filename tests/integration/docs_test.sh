#!/usr/bin/env bash
# Compares the documents with the code.
#   docs_test.sh KVBM_COMMAND SOURCE_DIRECTORY
set -euo pipefail
kvbm=$1
source=$2
passed=0
failed=0
expect() {
  if [ "$2" = "$3" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "docs: FAILED: $1"
    diff <(echo "$2") <(echo "$3") | head -20 || true
  fi
}
expect "docs/configuration.md is what kvbm config --reference prints" "$(sed -n '/^| Option/,$p' "$source/docs/configuration.md")" \
  "$("$kvbm" config --reference | sed -n '/^| Option/,$p')"
expect "the README's program is tests/examples/example.c" "$(sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '1d;$d')" \
  "$(cat "$source/tests/examples/example.c")"
expect "the program of docs/sessions.md is tests/examples/session.c" "$(sed -n '/^```c$/,/^```$/p' "$source/docs/sessions.md" | sed '1d;$d')" \
  "$(cat "$source/tests/examples/session.c")"
expect "the program of docs/codec.md, Blocks of a cache, is tests/examples/code_blocks.c" \
  "$(sed -n '/^## Blocks of a cache$/,/^## Files$/p' "$source/docs/codec.md" | sed -n '/^```c$/,/^```$/p' | sed '1d;$d')" \
  "$(cat "$source/tests/examples/code_blocks.c")"
metrics=$(grep -oE '"kvbm_[a-z_]+"' "$source/lib/manager/metrics_text.cc" | tr -d '"' | sort)
missing=""
for name in $metrics; do
  grep -q "\`$name\`" "$source/docs/operations.md" || grep -q "\`${name#kvbm_tier}\`" "$source/docs/operations.md" || missing="$missing $name"
done
expect "docs/operations.md names every metric" "" "$missing"
# Progress of setting up and building goes to standard error.
for what in bindings peers --engines; do
  expect "tools/bench $what --help sets nothing up" "" "$("$source/tools/bench" $what --help 2>&1 > /dev/null)"
done
expect "tools/bench bindings --help tells its options" 1 "$("$source/tools/bench" bindings --help 2> /dev/null | grep -c -- '^  --languages')"
expect "tools/demo --help sets nothing up" "" "$("$source/tools/demo" --help 2>&1 > /dev/null)"
expect "tools/demo --help tells what it needs" 1 "$("$source/tools/demo" --help | grep -c 'of disk')"
minutes_of() { sed -nE "s|^([0-9]+)\t$1\$|\1|p" "$source/tools/gate_minutes.tsv"; }
said() { sed -nE "s/$1/\1/p" "$source/$2"; }
expect "README.md says how long tools/demo takes" "$(minutes_of tools/demo)" "$(said '^ *tools.demo +# ([0-9]+) minutes.*' README.md)"
expect "README.md says how long the gate takes" "$(minutes_of tools/test)" "$(said '^ *tools.test +# ([0-9]+) minutes.*' README.md)"
expect "README.md says how long tools/test --quick takes" "$(minutes_of 'tools/test --quick')" \
  "$(said '.*tools.test --quick.*\(([0-9]+) minutes\).*' README.md)"
expect "CONTRIBUTING.md says how long tools/test --quick takes" "$(minutes_of 'tools/test --quick')" \
  "$(said '.*tools.test --quick .* ([0-9]+) minutes on two cores.*' CONTRIBUTING.md)"
expect "tools/test --help says how long the gate takes" "  tools/test: $(minutes_of tools/test)" \
  "$("$source/tools/test" --help | grep '^  tools/test: ')"
progress_of_chats=$(cd "$source/tests/integration/engines" && PYTHONDONTWRITEBYTECODE=1 python3 -c '
import chat
for turn in (1, 2): chat.progress(turn, 2, True)' 2>&1)
expect "tools/demo --vllm draws no progress into a pipe" "  with libkvbm: turn 2 of 2" "$progress_of_chats"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
