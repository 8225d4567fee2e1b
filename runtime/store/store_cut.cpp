#include "runtime/store/store_cut.h"

#include <errno.h>

#include <algorithm>
#include <string_view>

#include "platform/base/assert.h"

namespace tarn::store {

u32 frames_there(const Label& label, u64 file_bytes) {
  const u64 n_bytes = file_bytes - std::min(file_bytes, kFramesBegin);
  return static_cast<u32>(std::min<u64>(label.n_frames, n_bytes / label.frame_bytes));
}

Result<Cut> read_cut(IoBackend& io, const Crc32c& crc, const char* path,
                     std::span<std::byte> sectors) {
  TARN_ASSERT(sectors.size() >= kFramesBegin);
  const auto file = io.open({.path = path});
  if (!file && file.error().figures[0].value == ENOENT) return Cut{};
  if (!file) return fail(file.error());
  const Result<u64> size_bytes = io.size_bytes(*file);
  Result<Cut> cut = Cut{};
  if (!size_bytes) cut = fail(size_bytes.error());
  const u64 n_labels = size_bytes && *size_bytes >= kFramesBegin ? kLabels : 0;
  for (u64 i = 0; i < n_labels; ++i) {  // each by itself: one good label suffices
    Label label;
    const auto sector = sectors.subspan(i * kSectorBytes, kSectorBytes);
    if (const auto read = io_read_exact(io, *file, i * kSectorBytes, sector); !read) {
      cut = fail(read.error());
    } else if (parse_label(crc, sector, label) == LabelState::good) {
      cut = Cut{.frame_bytes = label.frame_bytes, .n_frames = frames_there(label, *size_bytes)};
      break;
    }
  }
  io.close(*file);
  return cut;
}

bool is_disk_failure(const Error& error) {
  constexpr u64 kNoAnswer = 0;
  constexpr u64 kOfDisks[] = {kNoAnswer, EIO,   ENOSPC, EDQUOT, EROFS,
                              ENOENT,    ENXIO, ENODEV, ESTALE, ETIMEDOUT};
  const Figure& figure = error.figures[0];
  return error.status == Status::io_failed && figure.name != nullptr &&
         std::string_view(figure.name) == "errno" && std::ranges::count(kOfDisks, figure.value) > 0;
}

}  // namespace tarn::store
