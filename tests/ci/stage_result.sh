#!/bin/sh
# stage_result.sh PATH: ends as that stage of CI did: 0, 77 if it was skipped, 1 if it failed or
# never ran. PATH.rc holds its seconds and how it ended, PATH.log its output.
if ! read -r elapsed_s how <"$1.rc"; then
  echo "this stage never ran"
  exit 1
fi
case $how in
  passed) echo "passed in $elapsed_s s" ;;
  skipped)
    grep '^skipped: ' "$1.log"
    exit 77
    ;;
  *)
    tail -n 60 "$1.log"
    echo "$how after $elapsed_s s"
    exit 1
    ;;
esac
