# Packs the GPU's tests and benches as one file that unpacks and runs itself: tools/gpu-check and
# toolchain/board-check. Sourced behind common.sh.

bundle_bytes_max=$((40 * 1024 * 1024))
# Folders of tests/ with files that run on a real GPU where there is one: those that ask for it.
bundle_tests=(kernels/gpu platform/gpu runtime/engine_gpu)
bundle_asks='gpus\(\)|system_device_open|SystemGpu'
# What a program of the bundle may ask of a system: its C library. The newest version of it is that
# of Ubuntu 22.04, which JetPack 6 is.
bundle_libraries='lib(c|m|dl|rt|pthread)\.so\..*|ld-linux.*'
bundle_glibc_max=2.35

# need_cuda ARCH EXAMPLES: an architecture's number, and nvcc in the PATH.
need_cuda() {
  [[ $1 =~ ^[0-9]+a?$ ]] || die "which GPU? --arch $2"
  PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null || die "no nvcc in the PATH or in /usr/local/cuda/bin"
}

# static_libraries DIR MACHINE: a folder that the linker searches first, with static ones alone.
static_libraries() {
  local dir=$1/static library
  mkdir -p "$dir"
  for library in /usr/lib64/liburing.a "/usr/lib/$2-linux-gnu/liburing.a" \
    "$root/build/$2-libs/liburing.a"; do
    [ ! -e "$library" ] || ln -sf "$library" "$dir/liburing.a"
  done
  echo "$dir"
}

# check_program FILE: that it starts where a driver and the C library are all there is.
check_program() {
  local needed newest
  needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [ -n "$needed" ] || die "$1 needs no library: the output of readelf was not understood"
  ! grep -vE "^($bundle_libraries)$" <<<"$needed" || die "$1 needs the libraries above"
  newest=$(readelf --dyn-syms -W "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
  [ "$(printf 'GLIBC_%s\n%s\n' "$bundle_glibc_max" "$newest" | sort -V | tail -1)" = \
    "GLIBC_$bundle_glibc_max" ] || die "$1 needs $newest, but boards have $bundle_glibc_max"
}

# write_self_extracting DIR OUT: what DIR holds, behind a script that unpacks and starts it.
write_self_extracting() {
  local dir=$1 out=$2 header
  header=$(sed -e 's/^  //' <<'HEADER'
  #!/bin/sh
  # Tarn's GPU check. `sh FILE --help` says what it does; `sh FILE --unpack DIR` only unpacks it.
  set -e
  unpack() { tail -c +OFFSET_ "$0" | gzip -dc | tar -xf - -C "$1"; }
  if [ "${1:-}" = --unpack ]; then mkdir -p "$2" && unpack "$2" && exit 0; fi
  command -v python3 >/dev/null || { echo "gpu-check: no python3 here" >&2; exit 69; }
  dir=$(mktemp -d "${TMPDIR:-/tmp}/gpu-check-XXXXXX")
  trap 'rm -rf "$dir"' EXIT
  unpack "$dir"
  code=0
  python3 "$dir/run.py" "$@" & child=$!
  trap 'kill -TERM $child 2>/dev/null' INT TERM HUP
  while kill -0 $child 2>/dev/null; do code=0; wait $child || code=$?; done
  exit $code
HEADER
  )
  header=${header/OFFSET_/$(printf '%07d' 0)}
  header=${header/0000000/$(printf '%07d' $((${#header} + 2)))}
  {
    printf '%s\n' "$header"
    tar -C "$dir" --owner=0 --group=0 --sort=name --mtime=@0 -cf - . | gzip -n
  } >"$out"
  chmod +x "$out"
}

# list_tests: "PROGRAM FILE" of each test that runs on a real GPU; the one that compares bits first.
list_tests() {
  local folder file
  for folder in "${bundle_tests[@]}"; do
    for file in "$root/tests/$folder"/real_gpu_test.cpp "$root/tests/$folder"/*_test.cpp; do
      [ -e "$file" ] && grep -qE "$bundle_asks" "$file" || continue
      echo "test_${folder//\//_} ${file##*/}"
    done
  done | awk '!seen[$0]++'
}

# make_bundle BUILD_DIR ARCH MACHINE STRIP OUT [OPTION OF CMAKE...]
make_bundle() {
  local build_dir=$1 arch=$2 machine=$3 strip=$4 out=$5 program stage bytes
  shift 5
  build_dir=$(realpath -m "$build_dir")  # the linker runs inside of it
  local programs=(gpu-bench tarn tarn-bench) tests list targets
  list=$(list_tests)
  mapfile -t tests < <(cut -d' ' -f1 <<<"$list" | sort -u)
  # libedit asks for the terminal's libraries; nobody types at these programs.
  configure "$build_dir" -DCMAKE_BUILD_TYPE=Release -DTARN_CUDA=ON "-DTARN_CUDA_ARCHS=$arch" \
    -DTARN_TESTS=ON -DTARN_FOUND_LIBEDIT=OFF \
    "-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -static-libgcc -Wl,--gc-sections \
-L$(static_libraries "$build_dir" "$machine") -L$root/build/$machine-libs/lib" "$@"
  targets=("${programs[@]}" "${tests[@]}")
  build "$build_dir" "${targets[@]}"
  stage=$build_dir/bundle
  rm -rf "$stage"
  mkdir -p "$stage" "$(dirname "$out")"
  for program in "${programs[@]}"; do "$strip" -o "$stage/$program" "$build_dir/$program"; done
  for program in "${tests[@]}"; do "$strip" -o "$stage/$program" "$build_dir/tests/$program"; done
  for program in "$stage"/*; do check_program "$program"; done
  cp "$root/tools/gpu_check/run.py" "$stage/"
  echo "$list" >"$stage/tests.list"
  echo "Tarn $(sed -n 's/^project(tarn VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")" \
    "$(git -c "safe.directory=$root" -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo "")" \
    "for sm_$arch, $machine" >"$stage/bundle.txt"
  write_self_extracting "$stage" "$out"
  bytes=$(stat -c %s "$out")
  [ "$bytes" -le "$bundle_bytes_max" ] ||
    die "$out has $bytes bytes, more than the $bundle_bytes_max that a bundle may have"
  say "$out: $bytes bytes ($((bytes * 10 / 1024 / 1024)) tenths of a MiB), of 40 MiB"
}
