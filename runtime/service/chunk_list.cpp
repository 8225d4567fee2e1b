#include "runtime/service/chunk_list.h"

namespace tarn::service {

using chat::ChunkMark;

Result<ChunkList> chunks_of(const engine::Engine& engine, const Ids& ids, f32 recompute) {
  ChunkList list;
  const bool computes_all = (recompute < 0 ? engine.status().blend_share : recompute) == 1;
  list.recompute = computes_all ? 1 : recompute;
  if (computes_all) return list;
  for (u32 i = 0; i < ids.ids.size(); ++i) {
    const ChunkMark mark = chat::chunk_mark(ids.notes[i]);
    if (mark == ChunkMark::none) continue;
    if (mark == ChunkMark::first && list.n == list.spans.size()) {
      return fail({.status = Status::invalid_request,
                   .reason = Reason::bad_field,
                   .key = "parts",
                   .hint = "too many chunks for one session: join some of them",
                   .figures = {{{"chunks_max", list.n}}}});
    }
    if (mark == ChunkMark::first) list.spans[list.n++] = {i, i};
    list.spans[list.n - 1].end = i + 1;
  }
  return list;
}

}  // namespace tarn::service
