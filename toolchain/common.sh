# Shared by toolchain/run and toolchain/test: where the tree is, what must be installed, one build.
# Everything these functions print goes to standard error; standard output belongs to the program
# that runs in the end.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)

# What was compiled already, by the same compiler with the same flags, is not compiled again.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
}
use_ccache

say() { printf '%s\n' "$*" >&2; }
die() { say "toolchain: $*"; exit 1; }

# distribution: ID-VERSION of this system, debian-12 for example.
distribution() { (. /etc/os-release 2>/dev/null; echo "${ID:-unknown}-${VERSION_ID:-0}"); }

# is_present KIND VALUE: whether a proof of toolchain/packages holds here.
is_present() {
  local name
  case $1 in
    command) for name in ${2//|/ }; do command -v "$name" >/dev/null && return 0; done; return 1 ;;
    header) [ -e "/usr/include/$2" ] || [ -e "/usr/local/include/$2" ] ;;
    file) compgen -G "$2" >/dev/null ;;
    *) die "toolchain/packages: unknown proof '$1'" ;;
  esac
}

# missing_packages GROUP...: the packages of these groups that are not here.
missing_packages() {
  local group package kind value where wanted=" $* " here
  here=$(distribution)
  while read -r group package kind value where; do
    case $group in '' | '#'*) continue ;; esac
    [[ $wanted == *" $group "* ]] || continue
    [[ $where == all || ",$where," == *",$here,"* ||
      $where == !* && $where != "!$here" ]] || continue
    is_present "$kind" "$value" || echo "$package"
  done <"$root/toolchain/packages"
}

# unpack_package DIR ARCHITECTURE SUITE NAME: a package of another architecture or release into
# DIR/unpacked. An apt of its own fetches it, so that the machine's sources and its list of
# architectures stay as they are.
unpack_package() {
  local dir=$1 arch=$2 suite=$3 package=$4 server=http://archive.ubuntu.com/ubuntu apt
  mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
  apt=(apt-get -qq -o "APT::Architecture=$arch" -o "APT::Architectures=$arch"
    -o APT::Sandbox::User=root -o "Dir::State=$dir/apt" -o Dir::State::status=/dev/null
    -o "Dir::Cache=$dir/apt")
  if [[ $(distribution) == ubuntu-* ]]; then  # what is not for PCs lives on another server there
    [ "$arch" = amd64 ] || server=http://ports.ubuntu.com/ubuntu-ports
    echo "deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg]" \
      "$server $suite main universe" >"$dir/apt/sources"
    apt+=(-o "Dir::Etc::sourcelist=$dir/apt/sources" -o Dir::Etc::sourceparts=/dev/null)
  fi
  "${apt[@]}" update || return
  (cd "$dir/apt" && "${apt[@]}" download "$package" && dpkg-deb -x "$package"_*.deb ../unpacked)
}

# arm64_library DIR NAME: DIR/NAME.a from the package NAME-dev, unless the system has it for arm64.
arm64_library() {
  local dir=$1 name=$2
  [ -e "$dir/$name.a" ] || [ -e "/usr/lib/aarch64-linux-gnu/$name.a" ] && return
  command -v apt-get >/dev/null || die "no apt-get to fetch $name for arm64 with"
  unpack_package "$dir" arm64 "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$name-dev"
  cp "$dir/unpacked/usr/lib/aarch64-linux-gnu/$name.a" "$dir/$name.a"
  rm -rf "$dir/apt" "$dir/unpacked"
}

# arm64_libraries DIR: what the cross build links. qemu-user knows no io_uring, so liburing is about
# compiling the ring for the boards; without it the threads are built alone.
arm64_libraries() {
  (arm64_library "$1" libmd) || die "libmd for arm64 is needed: put its libmd.a into $1"
  (arm64_library "$1" liburing) ||
    say "no liburing for arm64 could be had: io_uring is left out of this build, threads serve"
}

# need_headers SUITE:NAME: the headers of a later release's package.
need_headers() {
  local dir
  dir=$(mktemp -d)
  say "This release has no ${1#*:}: taking the headers of ${1%%:*}'s to /usr/local/include ..."
  if ! unpack_package "$dir" "$(dpkg --print-architecture)" "${1%%:*}" "${1#*:}" >&2; then
    rm -rf "$dir"
    die "the package ${1#*:} of ${1%%:*} is not available: put its headers into /usr/local/include"
  fi
  "${sudo[@]}" cp -r "$dir/unpacked/usr/include/." /usr/local/include/
  rm -rf "$dir"
}

# need_packages GROUP...: lists what is missing, installs it, and checks that it arrived.
need_packages() {
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  say "Missing packages: ${missing[*]}"
  command -v apt-get >/dev/null ||
    die "this system has no apt-get; install the content of these packages by hand: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "not root and no sudo; ask an administrator for: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "Installing them with apt-get ..."
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >&2 || say "apt-get update failed; trying with the present package lists"
  local package own=()
  for package in "${missing[@]}"; do [[ $package == *:* ]] || own+=("$package"); done
  [ ${#own[@]} -eq 0 ] ||
    "${apt[@]}" install -y --no-install-recommends "${own[@]}" </dev/null >&2 ||
    die "apt-get could not install: ${own[*]}. Install them by hand and start again."
  for package in "${missing[@]}"; do [[ $package != *:* ]] || need_headers "$package"; done
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] || die "still missing after the installation: ${missing[*]}"
}

# configure DIR OPTION...: Ninja where it is installed, make elsewhere; a build folder that exists
# keeps the generator it was made with.
configure() {
  local dir=$1 generator=()
  shift
  [ -e "$dir/CMakeCache.txt" ] || { command -v ninja >/dev/null && generator=(-G Ninja); }
  cmake -S "$root" -B "$dir" "${generator[@]}" "$@" >&2
}

# build DIR [TARGET...]
build() {
  local dir=$1
  shift
  cmake --build "$dir" -j "$jobs" ${1:+--target "$@"} >&2
}
