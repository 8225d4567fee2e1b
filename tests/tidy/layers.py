# Who may include whom: the one table, to which CMakeLists.txt's DEPENDS must be equal.
#
# A module is named by its folder. It may include itself, platform/base, and what stands here beside
# its name; nothing by way of another. Rows are in the order of the layers, so a row can only name
# rows above it, and no cycle can be written down.

BASE = "platform/base"

LAYERS = {
    "platform/base": [],
    "platform/clock": [],
    "platform/log": ["platform/clock"],
    "platform/cpu": ["platform/clock", "platform/log"],
    "platform/mem": ["platform/log"],
    "platform/power": [],
    "platform/io": ["platform/clock", "platform/log"],
    "platform/gpu": ["platform/clock", "platform/log"],
    "kernels": ["platform/cpu"],
    "runtime/config": [],
    "runtime/control": ["runtime/config"],
    "runtime/arena": ["platform/mem", "platform/gpu", "runtime/config"],
    "runtime/model": ["platform/cpu", "platform/io", "kernels", "runtime/config", "runtime/arena"],
    "runtime/text": ["runtime/arena", "runtime/model"],
    "runtime/chat": ["runtime/arena", "runtime/model", "runtime/text"],
    "runtime/store": ["platform/clock", "platform/cpu", "platform/io", "runtime/arena"],
    "runtime/step": [],
    "runtime/kv": ["platform/clock", "platform/log", "platform/cpu", "platform/io",
                   "runtime/config", "runtime/arena", "runtime/store", "runtime/step"],
    "runtime/method": ["platform/clock", "platform/cpu", "kernels", "runtime/config",
                       "runtime/arena", "runtime/model", "runtime/store", "runtime/step",
                       "runtime/kv"],
    "runtime/reuse": ["platform/clock", "platform/log", "platform/cpu", "platform/io", "kernels",
                      "runtime/config", "runtime/arena", "runtime/model", "runtime/store",
                      "runtime/step", "runtime/kv", "runtime/method"],
    "runtime/exec": ["platform/clock", "platform/log", "platform/cpu", "platform/gpu", "kernels",
                     "runtime/config", "runtime/arena", "runtime/model", "runtime/step",
                     "runtime/kv", "runtime/method"],
    "runtime/plan": ["platform/io", "platform/gpu", "kernels", "runtime/config", "runtime/arena",
                     "runtime/model", "runtime/text", "runtime/chat", "runtime/store",
                     "runtime/step", "runtime/kv", "runtime/method", "runtime/reuse",
                     "runtime/exec"],
    "runtime/engine": ["platform/clock", "platform/log", "platform/cpu", "platform/io",
                       "platform/mem", "platform/power", "platform/gpu", "kernels",
                       "runtime/config", "runtime/control", "runtime/arena", "runtime/model",
                       "runtime/text", "runtime/chat", "runtime/store", "runtime/step",
                       "runtime/kv", "runtime/method", "runtime/reuse", "runtime/plan",
                       "runtime/exec"],
    "runtime/service": ["platform/clock", "platform/cpu", "runtime/text", "runtime/chat",
                        "runtime/step", "runtime/plan", "runtime/engine"],
    "runtime/api": ["platform/cpu", "platform/power", "runtime/engine", "runtime/service"],
    "runtime/lab": ["kernels", "runtime/config", "runtime/model", "runtime/step",
                    "runtime/kv", "runtime/method", "runtime/reuse", "runtime/plan",
                    "runtime/engine"],
}

# Tools stand above the library. `tarn eval` and the benches may use the engine's public header.
TOOLS_MAY = ["platform/clock", "platform/log", "platform/cpu", "platform/io", "platform/mem",
             "platform/power", "platform/gpu", "kernels", "runtime/config", "runtime/control",
             "runtime/arena", "runtime/model", "runtime/text", "runtime/chat", "runtime/store",
             "runtime/step", "runtime/kv", "runtime/reuse", "runtime/plan", "runtime/engine",
             "runtime/api", "runtime/lab"]
ENGINE_PUBLIC = "runtime/engine/engine.h"

# Inside kernels/, a family sees itself, common/ and the tensor types of quant/. The table of
# kernels sees every family's contract, and is alone in asking platform/cpu what this machine can
# run.
KERNEL_SHARED = ["kernels/common", "kernels/quant"]
KERNEL_TABLE = ("kernels/cpu_table", "kernels/gpu_table")


def module_of(path):
    """The row of LAYERS that a path belongs to, the top folder for tools and tests, or None."""
    for module in LAYERS:
        if path.startswith(module + "/"):
            return module
    top = path.split("/")[0]
    return top if top in ("tools", "tests") and "/" in path else None


def kernel_family(path):
    """kernels/quant for kernels/quant/types/q8_0.h; kernels for a file that lies there itself."""
    return "/".join(path.split("/")[:-1][:2])


def why_not(path, included):
    """None if `path` may include the file `included`, else one sentence."""
    module, target = module_of(path), module_of(included)
    if module is None or module == "tests" or target is None:
        return None  # no module's file; a path that leads nowhere is the rule include-path's
    if module == "tools":
        if target == "tools" or target == BASE:
            return None
        if target == "runtime/engine" and included != ENGINE_PUBLIC:
            return f"of the engine, tools may include {ENGINE_PUBLIC} alone"
        return None if target in TOOLS_MAY else f"tools may not include {target}"
    if module == target == "kernels":
        family, other = kernel_family(path), kernel_family(included)
        if path.startswith(KERNEL_TABLE) or family == other or other in KERNEL_SHARED:
            return None
        return f"a kernel family sees itself and {' and '.join(KERNEL_SHARED)}, not {other}"
    if module == "kernels" and target == "platform/cpu" and not path.startswith(KERNEL_TABLE):
        return "only the table of kernels asks the machine what it can run"
    if target in (module, BASE) or target in LAYERS[module]:
        return None
    return f"{module} may include {', '.join([BASE] + LAYERS[module])}; not {target}"
