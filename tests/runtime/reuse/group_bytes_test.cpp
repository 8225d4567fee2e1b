// Goal    the size of a group that follows from a session's identity is the one that an engine's
//         pool has; identities without a size have none.
// Method  all types of KV over heads, dims and pages; each limit by itself.
#include <doctest/doctest.h>

#include "kernels/attn/attn.h"
#include "runtime/kv/group_pool.h"
#include "runtime/reuse/manifest.h"
#include "runtime/store/record.h"

namespace tarn::reuse::group_bytes_test {
namespace {

TEST_CASE("a group is as large as its identity says") {
  for (const kernels::KvType type :
       {kernels::KvType::f16, kernels::KvType::q8_0, kernels::KvType::q4_0}) {
    for (const u32 n_kv_heads : {1u, 2u, 3u, 8u}) {
      for (const u32 head_dim : {32u, 64u, 96u, 128u, 256u}) {
        for (const u32 page_tokens : {16u, 48u, 256u}) {
          CAPTURE(n_kv_heads);
          CAPTURE(head_dim);
          CAPTURE(page_tokens);
          const kv::GroupShape shape{
              .n_kv_heads = n_kv_heads,
              .page_tokens = page_tokens,
              .vector_bytes = static_cast<u32>(kernels::kv_vector_bytes(type, head_dim))};
          CHECK(group_bytes({.n_kv_heads = n_kv_heads,
                             .head_dim = head_dim,
                             .page_tokens = page_tokens,
                             .kv_type = static_cast<u32>(type),
                             .layout = kPageLayout}) == shape.group_bytes());
        }
      }
    }
  }
}

TEST_CASE("an identity of another version, or of more than a record holds, has no size") {
  const KvIdentity sound{
      .n_kv_heads = 8, .head_dim = 128, .page_tokens = 64, .layout = kPageLayout};
  const auto with = [&](auto&& change) {
    KvIdentity identity = sound;
    change(identity);
    return group_bytes(identity);
  };
  CHECK(group_bytes(sound) == 8 * 64 * 2 * 256);
  CHECK_FALSE(with([](KvIdentity& i) { i.kv_type = 3; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.layout += 1; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.n_kv_heads = 0; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.page_tokens = store::kTokensMax + 1; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.page_tokens = 60'000'000; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.kv_type = 1, i.head_dim = 80; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.kv_type = 2, i.head_dim = 80; }));
  CHECK_FALSE(with([](KvIdentity& i) { i.n_kv_heads = i.head_dim = ~u32{0}; }));
  CHECK(with([](KvIdentity& i) { i.n_kv_heads = 2048; }) == 64 * kMiB);
  CHECK_FALSE(with([](KvIdentity& i) { i.n_kv_heads = 2049; }));
}

}  // namespace
}  // namespace tarn::reuse::group_bytes_test
