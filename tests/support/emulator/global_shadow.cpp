#include "tests/support/emulator/global_shadow.h"

#include <algorithm>

namespace tarn::kernels::emulated {

void GlobalShadow::begin_launch() {
  if (now_ > 1u << 31) {  // no launch has as many CTAs
    pages_.clear();
    recent_ = {};
    now_ = 0;
  }
  first_ = now_ + 1;
}

GlobalShadow::Recent& GlobalShadow::recent(u64 number) {
  Recent& found = recent_[number % recent_.size()];
  if (found.number != number) {
    const auto page = pages_.find(number);
    found = {number, page == pages_.end() ? nullptr : page->second.get()};
  }
  return found;
}

template <class Fn>
void GlobalShadow::each_page(const void* address, u32 n_bytes, bool make, Fn&& fn) {
  u64 at = reinterpret_cast<u64>(address);
  for (u64 left = n_bytes; left > 0;) {
    const u64 here = std::min(left, kPageBytes - at % kPageBytes);
    Recent& place = recent(at / kPageBytes);
    if (place.page == nullptr && make) {
      auto& page = pages_[place.number];
      page = std::make_unique<Page>();
      place.page = page.get();
    }
    if (place.page != nullptr) fn(place.page->data() + at % kPageBytes, here);
    at += here;
    left -= here;
  }
}

bool GlobalShadow::write(const void* address, u32 n_bytes) {
  bool is_alone = true;
  each_page(address, n_bytes, true, [&](u32* stamps, u64 n) {
    for (u64 i = 0; i < n; ++i) {
      is_alone = is_alone && (stamps[i] < first_ || stamps[i] == now_);
      stamps[i] = now_;
    }
  });
  return is_alone;
}

bool GlobalShadow::is_written(const void* address, u32 n_bytes) {
  bool found = false;
  each_page(address, n_bytes, false, [&](const u32* stamps, u64 n) {
    found = found || std::any_of(stamps, stamps + n, [&](u32 stamp) { return stamp >= first_; });
  });
  return found;
}

}  // namespace tarn::kernels::emulated
