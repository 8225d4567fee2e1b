#include "tools/support/explanation.h"

#include <cstdarg>
#include <cstdio>

namespace tarn::tools {
namespace {

[[gnu::format(printf, 2, 3)]] void add(std::string& text, const char* format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text += line;
}

}  // namespace

std::string explanation_text(const tarn_explanation& e) {
  std::string text;
  if (e.tokens == 0) {
    text =
        "No decision: no profile is loaded (tarn calibrate), or no prompt needed KV from the "
        "disk.\n";
  } else if (e.tokens_on_disk == 0) {
    add(text, "KV on the disk: none of %u tokens (%u in memory)\n", e.tokens, e.tokens_in_memory);
  } else {
    const bool reads = e.kv_loaded != 0;
    add(text, "KV on the disk: %u of %u tokens, %s: %.3f s for the input\n", e.tokens_on_disk,
        e.tokens, reads ? "read" : "computed anew", reads ? e.load_s : e.compute_s);
    add(text, "  %s would take %.3f s\n", reads ? "computing it" : "reading it",
        reads ? e.compute_s : e.load_s);
  }
  if (e.chunk_tokens > 0) {
    add(text, "chunks: %u tokens, %.1f %% of them computed anew (%.1f %% at least)", e.chunk_tokens,
        100 * static_cast<double>(e.recompute), 100 * static_cast<double>(e.recompute_least));
    if (e.chunk_prefill_s > 0) {
      add(text, ": %.3f s for the input\n", e.chunk_blend_s);
      add(text,
          "  reading their KV takes %.3f s, as long as computing %.1f %%; all would take %.3f s\n",
          e.chunk_load_s, 100 * e.chunk_load_s / e.chunk_prefill_s, e.chunk_prefill_s);
    } else {
      text += "\n";
    }
    if (e.adaptive != 0)
      add(text, "  adaptive: %u of the tokens lay on the disk\n", e.chunk_tokens_on_disk);
  }
  if (e.prefill_factor == 0) return text;
  add(text, "now against the profile: prefill takes %.2fx, the disk %.2fx\n", e.prefill_factor,
      e.disk_factor);
  return text;
}

}  // namespace tarn::tools
