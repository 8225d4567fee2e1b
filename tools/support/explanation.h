// The load controller's decisions about an input (runtime/api/tarn_explain.h), as JSON and lines.
#pragma once

#include <string>

#include "runtime/api/tarn_explain.h"

namespace tarn::tools {

// The members of an object, which is open. Json: any writer of ours.
template <class Json>
void write_explanation(const tarn_explanation& e, Json& json) {
  json.key("kv").begin_object().key("loaded").boolean(e.kv_loaded != 0);
  json.key("tokens").number(e.tokens).key("in_memory").number(e.tokens_in_memory);
  json.key("on_disk").number(e.tokens_on_disk);
  json.key("load_s").real(e.load_s).key("compute_s").real(e.compute_s).end_object();
  json.key("chunks").begin_object().key("tokens").number(e.chunk_tokens);
  json.key("on_disk").number(e.chunk_tokens_on_disk);
  json.key("recompute").real(static_cast<double>(e.recompute));
  json.key("recompute_least").real(static_cast<double>(e.recompute_least));
  json.key("load_s").real(e.chunk_load_s).key("prefill_s").real(e.chunk_prefill_s);
  json.key("blend_s").real(e.chunk_blend_s).end_object();
  json.key("prefill_factor").real(e.prefill_factor).key("disk_factor").real(e.disk_factor);
  json.key("adaptive").boolean(e.adaptive != 0);
}

// Sentences, each ending a line.
std::string explanation_text(const tarn_explanation& e);

}  // namespace tarn::tools
