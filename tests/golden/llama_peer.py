"""llama.cpp's libraries as an oracle, for scripts by hand that make golden data or compare with it.

The library is llama.cpp's own, which the script's user names. Drivers are C++ programs of this
tree, compiled against its headers and linked with it.
"""
import ctypes
import subprocess
from pathlib import Path


class Traits(ctypes.Structure):
    """struct ggml_type_traits, as far as it is used."""
    _fields_ = [("name", ctypes.c_char_p), ("block_elems", ctypes.c_int64),
                ("interleave", ctypes.c_int64), ("block_bytes", ctypes.c_size_t),
                ("is_quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p),
                ("from_float", ctypes.c_void_p)]


def load_ggml(path):
    """libggml-base.so, whose ggml_get_type_traits() returns a pointer to Traits."""
    library = ctypes.CDLL(path)
    library.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    return library


def add_options(parser):
    parser.add_argument("--llama-source", required=True)
    parser.add_argument("--llama-lib", required=True)


def build_driver(source, folder, llama_source, llama_lib):
    """Compiles `source` into `folder` and returns the program's path."""
    driver = Path(folder) / Path(source).stem
    llama_source, llama_lib = Path(llama_source), Path(llama_lib).resolve()
    subprocess.run(
        ["c++", "-std=c++17", "-O2", source, "-o", driver, "-I", llama_source / "include",
         "-I", llama_source / "ggml" / "include", "-L", llama_lib, "-lllama", "-lggml",
         "-lggml-base", f"-Wl,-rpath,{llama_lib}"], check=True)
    return driver
