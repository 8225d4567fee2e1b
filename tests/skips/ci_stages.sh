#!/usr/bin/env bash
# ci_stages.sh SOURCE_DIR BUILD_DIR
#
# Goal    toolchain/test --ci ends with each stage as it ended: passed, failed, or skipped where the
#         stage said so, and nowhere else.
#         --full runs no stage again that passed at this commit.
# Method  the scripts in a tree of their own, where each stage is one command: one that succeeds,
#         one that skips, one that is killed, some that fail, with 77 too. The stage aarch64 is the
#         real one, on a machine that says it is one.
set -euo pipefail
source_dir=$1 tree=$2/ci_stages
rm -rf "$tree"
mkdir -p "$tree/toolchain" "$tree/tests" "$tree/bin" "$tree/build/cpu-only"
cp "$source_dir"/toolchain/common.sh "$tree/toolchain"
cp -r "$source_dir/tests/ci" "$tree/tests"
: >"$tree/build/cpu-only/CTestTestfile.cmake"  # no release tests
printf '#!/bin/sh\necho aarch64\n' >"$tree/bin/uname"
chmod +x "$tree/bin/uname"
{
  sed '/^case ${1:-} in/,$d' "$source_dir/toolchain/test"
  cat <<'STAGES'
stage_good() { true; }
stage_idle() { skip "nothing to do here"; false; }
stage_bad() { false; }
stage_killed() { kill -9 "$BASHPID"; }
stage_bad77() { sh -c 'exit 77'; }
stage_liar() { echo "skipped: only said so"; sh -c 'exit 77'; }
[ "$1" != --full ] || full=yes
shift
run_stages ci "$@"
STAGES
} >"$tree/toolchain/test"

n_wrong=0
# expect STAGE RESULT
expect() {
  local said
  PATH=$tree/bin:$PATH bash "$tree/toolchain/test" --ci "$1" >"$tree/said" 2>&1 || true
  said=$(sed -n "s|.*Test *#[0-9]*: ci/$1 \.*[* ]*\([A-Z][a-z]*\).*|\1|p" "$tree/said")
  [ "$said" = "$2" ] && return
  echo "stage $1 is shown as '$said', not as $2:"
  cat "$tree/said"
  n_wrong=$((n_wrong + 1))
}
expect good Passed
expect idle Skipped
expect aarch64 Skipped
expect bad Failed
expect killed Failed
expect bad77 Failed
expect liar Failed

# expect_ran TIMES: of two runs of --full with the same stage.
expect_ran() {
  local n_ran
  n_ran=$(for run in 1 2; do bash "$tree/toolchain/test" --full "$2" || true; done 2>&1 |
    grep -c "^=== stage $2$" || true)
  [ "$n_ran" = "$1" ] && return
  echo "stage $2 ran $n_ran times, not $1"
  n_wrong=$((n_wrong + 1))
}
printf '/build\n/said\n' >"$tree/.gitignore"
git -C "$tree" init -q
git -C "$tree" add .
git -C "$tree" -c user.name=t -c user.email=t@t commit -qm sample
expect_ran 1 good  # at one commit, once
expect_ran 2 bad
echo >"$tree/uncommitted"
expect_ran 2 good
exit "$n_wrong"
