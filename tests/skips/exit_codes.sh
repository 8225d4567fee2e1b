#!/bin/sh
# exit_codes.sh PROGRAM...
#
# Goal    a test program ends with 77 where a case of it could not run, whatever else ran, unless a
#         case failed.
# Method  sample.cpp's three cases, alone and together.
n_wrong=0
expect() {
  want=$1 cases=$2
  shift 2
  "$@" "--test-case=$cases" >/dev/null 2>&1
  got=$?
  [ "$got" -eq "$want" ] && return
  echo "$cases: ended with $got, not $want"
  n_wrong=$((n_wrong + 1))
}
expect 0 "*runs" "$@"
expect 77 "*cannot" "$@"
expect 77 "*runs,*cannot" "$@"
expect 1 "*fails" "$@"
expect 1 "*cannot,*fails" "$@"
exit "$n_wrong"
