#!/usr/bin/env python3
"""archive_symbols.py NM OBJDUMP ARCHIVE HEADER... [--cuda]: libtarn.a is a guest in its host.

Goal    the archive exports the functions of the public headers and nothing else, needs no symbol
        that ends, prints to or changes the host's process, and keeps no writable state beside the
        few statics that are listed here.
Method  nm and objdump on the finished archive; the lists below. archive_symbols_test.py feeds the
        readers of those listings bad ones.
"""
import re
import subprocess
import sys
from pathlib import Path

FORBIDDEN = {
    "ends the process":
        "exit _exit _Exit quick_exit abort atexit raise kill __assert_fail __assert "
        "__chk_fail __cxa_throw",
    "changes the process":
        "signal sigaction sigprocmask prctl setlocale newlocale mlockall umask chdir "
        "setrlimit setenv putenv unsetenv fork vfork execve system cudaDeviceReset",
    "reads the environment":
        "getenv secure_getenv environ __environ",
    "prints":
        "printf fprintf vprintf vfprintf dprintf puts fputs putchar fputc putc fwrite perror "
        "syslog stdout stderr __printf_chk __fprintf_chk _ZSt4cout _ZSt4cerr _ZSt4clog",
    "knows locales":
        "strtol strtoul strtoll strtoull strtod strtof sscanf __isoc99_sscanf atoi atol atof",
    "gives libm's bits, which differ by CPU":
        "exp expf exp2 exp2f log logf log2 pow powf sin sinf cos cosf sincos sincosf tan tanf "
        "tanh tanhf fma fmaf",
    "leaves frames without their ends":
        "setjmp _setjmp __sigsetjmp longjmp _longjmp siglongjmp __longjmp_chk",
    "is a stack that grows with its input":
        "alloca regcomp regexec",
}

# std::terminate and __cxa_rethrow are needed by runtime/config/toml_reader.cpp alone, which catches
# what toml++'s containers throw; the core throws nothing.

# Writable statics that may exist, as objdump -C names them: thread-local each, so that no engine
# sees another's.
STATE_SECTIONS = (".bss", ".data", ".tbss", ".tdata")
STATE_ALLOWED = {
    "tarn::(anonymous namespace)::t_sink": "platform/base/assert.cpp: where this thread reports to",
    "tarn::api::(anonymous namespace)::t_error_text": "runtime/api/tarn.cpp: its last error",
    "tarn::api::(anonymous namespace)::t_error": "runtime/api/tarn.cpp: the same, for programs",
}

# With --cuda: how nvcc lets a program's start register its kernels with the static runtime, which
# is part of the host's program then. Nothing of it runs on a GPU or talks to a driver.
CUDA_NAMES = {"atexit"}
CUDA_STATE = (  # beginnings of names
    "__cudaFatCubinHandle",  # nvcc, one for each .cu: the runtime's handle of its kernels
    "__device_stub__", "guard variable for __device_stub__",  # nvcc, one for each kernel: the same
    "tarn::(anonymous namespace)::g_sink",  # platform/gpu/cuda/read_probe.cu: names a GPU's word
)


def exported_names(header):
    """The functions that the public header declares."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return set(re.findall(r"TARN_API\b[^;(]*?\b(tarn_\w+)\s*\(", code))


def name_problems(listing, header, allowed=frozenset()):
    """`listing` is nm's; yields one sentence for each problem."""
    defined, undefined = set(), set()
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-fA-F]*\s+([A-Za-z])\s+(\S+)$", line)
        if not match:
            continue
        kind, name = match.group(1), match.group(2).split("@")[0]
        if kind in "Uwv" and not re.match(r"^[0-9a-fA-F]", line):
            undefined.add(name)
        elif kind.isupper() or kind in "uwv":
            defined.add(name)
    declared = exported_names(header)
    if not declared:
        yield "the header declares no function: the reader of the header is broken"
    for name in sorted(defined - declared):
        yield f"{name} is exported, but the public header does not declare it"
    for name in sorted(declared - defined):
        yield f"{name} is declared in the public header, but the archive does not have it"
    for why, names in FORBIDDEN.items():
        for name in sorted(undefined & set(names.split()) - allowed):
            yield f"{name} is needed from outside: it {why}"


def state_problems(listing, allowed=()):
    """`listing` is that of objdump -t -C; yields one sentence for each writable static."""
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-f]{8,16} .{7} (\S+)\t([0-9a-f]{8,16}) +(?:\.hidden )?(.+)$", line)
        if not match or int(match.group(2), 16) == 0:
            continue
        section, name = match.group(1), match.group(3)
        if section.startswith(STATE_SECTIONS) and not section.startswith(".data.rel.ro"):
            # DW.ref.* is the unwinder's.
            if name not in STATE_ALLOWED and not name.startswith((*allowed, "DW.ref.")):
                yield f"{name} in {section} is state outside of every engine"


def main():
    nm, objdump, archive, *headers = [arg for arg in sys.argv[1:] if arg != "--cuda"]
    has_cuda = "--cuda" in sys.argv

    def run(*command):
        return subprocess.run([*command, archive], capture_output=True, text=True,
                              check=True).stdout

    declared = "".join(Path(header).read_text(encoding="utf-8") for header in headers)
    found = list(name_problems(run(nm), declared, CUDA_NAMES if has_cuda else frozenset()))
    found += state_problems(run(objdump, "-t", "-C"), CUDA_STATE if has_cuda else ())
    for line in found:
        print(line)
    print(f"{archive}: {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
