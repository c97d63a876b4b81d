#!/usr/bin/env bash
# Tests how tools/run_suites treats suites that fail: run_suites_test.sh SOURCE_DIRECTORY
set -uo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0

# expect STATUS TEXT SUITES...: a suite is NAME:LABEL:FAILURES, which fails so often and passes then.
expect() {
  local status=$1 text=$2 suite name label failures said rc=0
  shift 2
  rm -rf "$folder"/*
  for suite in "$@"; do
    IFS=: read -r name label failures <<< "$suite"
    printf '#!/bin/sh\nn=$(cat "%s/%s.runs" 2> /dev/null || echo 0)\necho $((n + 1)) > "%s/%s.runs"\necho "this is run $n of %s"\n[ $n -ge %s ]\n' \
      "$folder" "$name" "$folder" "$name" "$name" "$failures" > "$folder/$name.sh"
    {
      echo "add_test($name sh $folder/$name.sh)"
      [ -z "$label" ] || echo "set_tests_properties($name PROPERTIES LABELS $label)"
    } >> "$folder/CTestTestfile.cmake"
  done
  said=$("$root/tools/run_suites" "$folder" --jobs 2 2>&1) || rc=$?
  if [ $rc -ne "$status" ] || [[ $said != *"$text"* ]]; then
    echo "FAILED: $*: exit status $rc instead of $status, or without: $text"
    echo "$said"
    bad=1
  fi
}
runs() { # NAME COUNT
  [ "$(cat "$folder/$1.runs")" -eq "$2" ] || { echo "FAILED: $1 ran $(cat "$folder/$1.runs") times instead of $2"; bad=1; }
}

expect 0 '2 passed, 0 failed' good::0 also_good:realtime:0
runs also_good 1
# One that failed beside others and passes twice alone; the log of its failure is kept.
expect 0 'FLAKY flaky' good::0 flaky:realtime:1
runs flaky 3
grep -q 'this is run 0 of flaky' "$folder/flaky/flaky.log" || { echo "FAILED: the log of the failure is not kept"; bad=1; }
# One that fails again fails the run.
expect 1 'FAILED red' red:realtime:2 good::0
runs red 2
expect 1 '1 passed, 1 failed' red:realtime:9 good::0
# A suite that does not depend on real time is not run again.
expect 1 'FAILED plain' plain::1 good::0
runs plain 1
exit $bad
