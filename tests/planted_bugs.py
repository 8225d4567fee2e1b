#!/usr/bin/env python3
"""Shows that tests can fail: plants one mistake at a time and expects the test that guards it red.

    planted_bugs.py BUILD_DIR [NAME ...]      BUILD_DIR: an empty or earlier folder for the work

The whole-model test guards the arithmetic, and a random life each rule of what happens around it.
Works on a copy of the tree inside BUILD_DIR. A mistake whose lines are no longer in the source, or
that does not build, is an error: bring it up to date. Takes some minutes.
"""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FORWARD = "runtime/exec/forward.cpp"
BACKEND = "runtime/exec/cpu/cpu_backend.cpp"
ATTENTION = "runtime/exec/cpu/attention.cpp"
ROPE = "kernels/rope/rope_table.cpp"

# A guard: the program, and the file of it whose cases must turn red.
MODEL = ("test_golden_model", "*model_golden_test.cpp")
MOVER = ("test_sim", "*/mover_random_test.cpp")
REUSE = ("test_sim", "*/reuse_random_test.cpp")
SELECT = ("test_sim", "*/select_random_test.cpp")
BLEND = ("test_runtime_engine", "*blend_life_test.cpp")
CALLERS = ("test_runtime_api", "*many_callers_test.cpp")

# name, file, the right line, the wrong one: mistakes in the forward pass
BUGS_OF_THE_MODEL = [
    ("rope pair order", BACKEND,
     "spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent",
     "spec.rope_halves ? kernels::RopePairs::adjacent : kernels::RopePairs::halves"),
    ("rope factors ignored", ROPE, "factors != nullptr ? f64{factors[i]} : 1.0",
     "factors != nullptr ? 1.0 : 1.0"),
    ("rope exponent", ROPE, "-2.0 * i / n_rot", "-2.0 * i / (n_rot + 2)"),
    ("keys not rotated", BACKEND, "rope_heads(k, n, args_.spec->n_kv_heads);",
     "rope_heads(k, 0, args_.spec->n_kv_heads);"),
    ("gqa map", ATTENTION, "run.sequence->pages(a.cache_layer, kv_head,",
     "run.sequence->pages(a.cache_layer, (kv_head + 1) % n_kv_heads,"),
    ("missing scale", ATTENTION, "1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim))", "1.0f"),
    ("gate and up swapped", FORWARD, "backend.swiglu(b.gate, b.up,",
     "backend.swiglu(b.up, b.gate,"),
    ("norm epsilon", FORWARD,
     "(b.x, layer.attn_norm, spec.rms_eps,",
     "(b.x, layer.attn_norm, 1e-6f,"),
    ("value bias left out", FORWARD,
     "                            {&layer.attn_v, layer.attn_v_bias, v}",
     "{&layer.attn_v, nullptr, v}"),
    ("key norm left out", FORWARD,
     "backend.rms_norm_heads(k, layer.attn_k_norm, spec.rms_eps, spec.n_kv_heads, n);", ""),
    ("attention not added", FORWARD,
     "backend.project_add({&layer.attn_output, b.attn_out, b.normed, b.x}, n);", ""),
    ("ffn reads the attention's norm", FORWARD, "backend.rms_norm(b.x, layer.ffn_norm,",
     "backend.rms_norm(b.x, layer.attn_norm,"),
]

# guard, name, file, the right line, the wrong one: one mistake a rule of sessions, KV and calls
BUGS_OF_LIVES = [
    (REUSE, "a group that fails its checksum counts as read", "runtime/kv/group_io.cpp",
     "    if (move.ok) {", "    if (move.ok || true) {"),
    (MOVER, "a shared tail is cut without a copy of its last slot", "runtime/kv/sequence.cpp",
     "pool_->copy_slots(tail, *copy, tail_slots);",
     "pool_->copy_slots(tail, *copy, tail_slots - 1);"),
    (SELECT, "a damaged extent is believed", "runtime/kv/extent_reads.cpp",
     "if (!holds) {", "if (false && !holds) {"),
    (SELECT, "a fork has none of its source's index", "runtime/method/selector.cpp",
     "s.heads[head]->copy_from(*source.heads[head]);", ""),
    (CALLERS, "calls behind a failed one are carried out", "runtime/service/call_queue.cpp",
     "const bool depends = r->is_submitted &&", "const bool depends = false && r->is_submitted &&"),
    (CALLERS, "a cancel reaches another session", "runtime/service/call_queue.cpp",
     "r->is_cancelled = r->is_cancelled || r->session == session;", "r->is_cancelled = true;"),
    (CALLERS, "calls of a session pass one another", "runtime/service/call_queue.cpp",
     "if (r->waits || is_held(held, *r)) continue;", "if (r->waits) continue;"),
    (CALLERS, "an answer goes on without a KV slot", "runtime/engine/batch_runner.cpp",
     "s.run.is_admitted = s.sequence.reserve(1);",
     "s.run.is_admitted = s.sequence.reserve(1) || true;"),
    (REUSE, "tenants share their pages", "runtime/engine/sessions/session_pool.cpp",
     "reuse::of_tenant(o_.identity, s.saved.tenant.key)", "o_.identity"),
    (REUSE, "a restored session has half its tokens", "runtime/engine/sessions/session_saves.cpp",
     "std::ranges::copy(manifest.token_ids, s.tokens.ids.begin());",
     "std::ranges::copy(manifest.token_ids.first(n_ids / 2), s.tokens.ids.begin());"),
    (SELECT, "a restored session forgets which KV is exact",
     "runtime/engine/sessions/session_saves.cpp",
     "if (has_index && manifest.first_approx_slot != 0)", "if (false)"),
    (SELECT, "a dropped row is committed", "runtime/engine/batch_runner.cpp",
     "if (run.state == RunState::dropped) continue;", ""),
    (SELECT, "an input is read behind KV of rows that selected",
     "runtime/engine/sessions/session_kv.cpp",
     "if (s.state != SessionState::idle || !o_.select.exact_answers ||", "if (true ||"),
    (SELECT, "slots stay cached over a cut", "runtime/method/selector.cpp",
     "truncate_cache(s, cache_head++, n_tokens, cache);",
     "truncate_cache(s, cache_head++, ~u32{0} / 2, cache);"),
    (SELECT, "codes stay behind a cut", "runtime/method/selector.cpp",
     "if (keeps) truncate_heads(s);", ""),
    (BLEND, "a blend chooses by the first check's values", "runtime/exec/executor.cpp",
     "step::from_row(all, run.row_begin - first->row_begin)", "step::from_row(all, 0)"),
    (BLEND, "two blends choose in the same memory", "runtime/reuse/blend/blend.cpp",
     "own.deviation = Carver::row(deviation, n, i);",
     "own.deviation = Carver::row(deviation, n, 0);"),
    (BLEND, "blended KV is another prompt's prefix", "runtime/engine/sessions/session_kv.cpp",
     "  s.approx.first_slot = std::min(s.approx.first_slot, s.sequence.n_slots());\n  commit(",
     "  commit("),
    (BLEND, "a prefix reaches into chunks", "runtime/engine/sessions/session_kv.cpp",
     "n_ids = std::min(n_ids, s.approx.chunks.first_token());  // where", "// where"),
]
BUGS = [(MODEL, *bug) for bug in BUGS_OF_THE_MODEL] + BUGS_OF_LIVES


def build(work, guards):
    return subprocess.run(["cmake", "--build", os.path.join(work, "build"), "--target",
                           *sorted({program for program, _ in guards})],
                          capture_output=True, text=True)


def test_passes(work, guard):
    program, files = guard
    return subprocess.run([os.path.join(work, "build", "tests", program),
                           "--source-file=" + files, "--abort-after=1"],
                          capture_output=True).returncode == 0


def main():
    work, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    tree = os.path.join(work, "tree")
    shutil.rmtree(tree, ignore_errors=True)
    files = subprocess.run(["git", "-c", "safe.directory=*", "ls-files"], cwd=ROOT, check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split("\n")
    for name in filter(None, files):
        os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, name), os.path.join(tree, name))
    for _, _, path, _, _ in BUGS:  # an earlier run's objects may be of a mistake, and newer
        os.utime(os.path.join(tree, path))
    subprocess.run(["cmake", "-S", tree, "-B", os.path.join(work, "build"), "-G", "Ninja",
                    "-DTARN_TESTS=ON"], check=True, stdout=subprocess.DEVNULL)
    bugs = [bug for bug in BUGS if not names or bug[1] in names]
    guards = {bug[0] for bug in bugs}
    built = build(work, guards)
    if built.returncode != 0:
        sys.exit("the unchanged tree does not build:\n" + built.stdout[-4000:])
    for guard in guards:
        if not test_passes(work, guard):
            sys.exit(f"{guard[1]} is red, and nothing is planted yet")
    n_failed = 0
    for guard, name, path, right, wrong in bugs:
        place = os.path.join(tree, path)
        with open(place, encoding="utf-8") as file:
            source = file.read()
        if source.count(right) != 1:
            verdict = "ERROR: stands %d times in %s" % (source.count(right), path)
        else:
            with open(place, "w", encoding="utf-8") as file:
                file.write(source.replace(right, wrong))
            built = build(work, {guard})
            verdict = "ERROR: does not build" if built.returncode else \
                "NOT SEEN" if test_passes(work, guard) else "red"
            with open(place, "w", encoding="utf-8") as file:
                file.write(source)
        n_failed += verdict != "red"
        print(f"{name}: {verdict}", flush=True)
    sys.exit(n_failed != 0)


if __name__ == "__main__":
    main()
