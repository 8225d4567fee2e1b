// Goal    no bytes in the frames of a store's file end the process, reach past a sector, or leave
//         an index whose invariants do not hold; what is accepted is a record of this frame.
// Method  libFuzzer; each frame's head is taken from the input raw, or as fields with the checksum
//         made good (random bytes never have one), then the index is rebuilt from them as a start
//         does it and used: found, held, evicted, reserved.
#include <cstring>
#include <vector>

#include "runtime/store/record_index.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/store_invariants.h"

namespace tarn::store {
namespace {

constexpr u32 kFrames = 16;

using tarn::test::require;

const Crc32c& crc() { return crc32c_ways()[0]; }

struct Frame {
  alignas(8) std::array<std::byte, kSectorBytes> sector{};
  std::vector<u64> meta{};  // the whole head, where there are meta sectors
};

u64 length_of(test::FuzzInput& input) {
  switch (input.below(4)) {
    case 0:
      return input.number<u8>();
    case 1:
      return input.number<u16>();
    case 2:
      return input.number<u32>();
    default:
      return input.number<u64>();
  }
}

// A head with fields from the input; most that would only be refused at once are right.
void write_fields(test::FuzzInput& input, const FrameRef& ref, Frame& frame) {
  const u8 wrong = input.number<u8>();  // one bit for each field that is not to be right
  RecordHead head{.magic = {'T', 'A', 'R', 'N', 'R', 'E', 'C', '1'},
                  .version = (wrong & 1) != 0 ? input.number<u32>() : kFormatVersion,
                  .kind = (wrong & 2) != 0 ? input.number<u32>() : 1 + input.below(kKinds),
                  .generation = input.number<u8>(),
                  .payload_bytes = length_of(input),
                  .key = {input.below(8), 0},
                  .store_id = (wrong & 4) != 0 ? input.number<u64>() : ref.store_id,
                  .frame_idx = (wrong & 8) != 0 ? input.number<u32>() : ref.frame_idx,
                  .n_tokens = static_cast<u32>(length_of(input))};
  const RecordShape shape{head.payload_bytes, head.n_tokens};
  if (shape.within_limits()) {
    head.n_frames = shape.frames(ref.frame_bytes);
    head.n_meta_sectors = shape.meta_sectors();
  }
  if ((wrong & 16) != 0) head.n_frames = input.number<u32>();
  if ((wrong & 32) != 0) head.n_meta_sectors = input.number<u32>();
  if ((wrong & 64) != 0) head.reserved[input.below(7)] = input.number<u32>();
  const auto words = input.take(input.below(kHeadWords * sizeof(u32) + 1));
  std::memcpy(frame.sector.data() + sizeof head, words.data(), words.size());
  std::memcpy(frame.sector.data(), &head, sizeof head);
  if (shape.within_limits() && shape.meta_sectors() > 0) {
    frame.meta.resize(shape.head_bytes() / sizeof(u64));
    auto* bytes = reinterpret_cast<std::byte*>(frame.meta.data());
    const auto meta = input.take(input.below(2048));
    std::memcpy(bytes + kSectorBytes, meta.data(), meta.size());
    auto* crcs = reinterpret_cast<u32*>(frame.sector.data() + sizeof head);
    if ((wrong & 128) == 0) crc().sectors(bytes + kSectorBytes, shape.meta_sectors(), crcs);
  }
  head.head_crc = crc().bytes(frame.sector.data(), kSectorBytes);
  std::memcpy(frame.sector.data(), &head, sizeof head);
}

void check_view(const HeadView& view, const FrameRef& ref) {
  const RecordShape shape = view.shape();
  require(shape.within_limits());
  require(view.head().frame_idx == ref.frame_idx && view.head().store_id == ref.store_id);
  require(view.head().n_frames >= 1 && ref.frame_idx + view.head().n_frames <= ref.n_frames);
  require(shape.record_bytes() <= view.head().n_frames * ref.frame_bytes);
  u64 sum = 0;  // every word that it points at can be read
  for (const u32 token : view.token_ids()) sum += token;
  for (const u32 value : view.payload_crcs()) sum += value;
  require(view.token_ids().empty() || view.token_ids().size() == shape.n_tokens);
  volatile u64 used = sum;
  static_cast<void>(used);
}

struct Rebuild {
  explicit Rebuild(test::FuzzInput& input) {
    ref.frame_bytes = 2 * kSectorBytes << input.below(6);
    Carver counted;
    index.init(kFrames, counted);
    memory.resize(*counted.n_bytes().get() / sizeof(u64) + 1);
    Carver carver(std::as_writable_bytes(std::span(memory)));
    index.init(kFrames, carver);
    for (u32 i = 0; i < kFrames; ++i) {
      ref.frame_idx = i;
      switch (input.below(3)) {
        case 0: {
          const auto raw = input.take(input.below(kSectorBytes + 1));
          std::memcpy(frames[i].sector.data(), raw.data(), raw.size());
          break;
        }
        case 1:
          write_fields(input, ref, frames[i]);
          break;
        default:
          break;
      }
    }
  }
  std::optional<HeadView> view_of(u32 frame_idx) {
    ref.frame_idx = frame_idx;
    return parse_head(crc(), ref, frames[frame_idx].sector);
  }

  FrameRef ref{.store_id = 0x5EED, .frame_bytes = 0, .n_frames = kFrames, .frame_idx = 0};
  std::array<Frame, kFrames> frames{};
  std::vector<u64> memory;
  RecordIndex index{};
};

void rebuild(Rebuild& it) {
  u32 youngest_frame = 0;
  u64 youngest = 0;
  for (u32 i = 0; i < kFrames; ++i) {
    auto view = it.view_of(i);
    if (!view) continue;
    check_view(*view, it.ref);
    it.index.see(i, *view);
    if (view->head().generation > youngest) youngest_frame = i;
    youngest = std::max(youngest, view->head().generation);
    if (it.frames[i].meta.empty()) continue;
    std::memcpy(it.frames[i].meta.data(), it.frames[i].sector.data(), kSectorBytes);
    const auto whole = std::as_bytes(std::span(it.frames[i].meta));
    auto with_meta = parse_head(crc(), it.ref, whole);
    require(with_meta.has_value());
    if (parse_meta(crc(), whole, *with_meta)) check_view(*with_meta, it.ref);
  }
  for (u32 i = 0; i < kFrames; ++i) it.index.weigh(i);
  it.index.finish_scan(youngest_frame);
  test::check_invariants(it.index);
}

void use(Rebuild& it, test::FuzzInput& input) {
  u64 generation = 1000;
  for (u32 step = 0; step < 8; ++step) {
    const auto found = it.index.find({input.below(8), 0});
    if (found) {
      require(it.index.is_current(*found));
      it.index.hold(*found);
      it.index.let_go(*found);
    }
    const RecordShape shape{.payload_bytes = input.below(8) * it.ref.frame_bytes};
    const auto ref = it.index.reserve({.key = {100 + step, 0},
                                       .shape = shape,
                                       .n_frames = shape.frames(it.ref.frame_bytes),
                                       .generation = ++generation});
    if (!ref) continue;
    it.index.publish(*ref);
    test::check_invariants(it.index);
  }
}

}  // namespace
}  // namespace tarn::store

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, std::size_t n_bytes) {
  tarn::test::FuzzInput input(data, n_bytes);
  tarn::store::Rebuild it(input);
  tarn::store::rebuild(it);
  tarn::store::use(it, input);
  return 0;
}
