// Records which CTA of the running launch wrote each byte of global memory. A byte's stamp is the
// writing CTA's number, counted over all launches, so that a new launch has nothing to clear.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "platform/base/types.h"

namespace tarn::kernels::emulated {

class GlobalShadow {
 public:
  void begin_launch();
  void begin_cta() { ++now_; }
  // Notes that the running CTA writes these bytes. False: another CTA of the launch wrote one of
  // them.
  bool write(const void* address, u32 n_bytes);
  // Whether the launch wrote one of these bytes.
  bool is_written(const void* address, u32 n_bytes);

 private:
  static constexpr u64 kPageBytes = 4 * kKiB;
  using Page = std::array<u32, kPageBytes>;
  struct Recent {
    u64 number = ~u64{0};
    Page* page = nullptr;  // nullptr: never written
  };
  Recent& recent(u64 number);
  // Calls fn(stamps, n) for the stamps of the bytes, page by page; nullptr for a page without.
  template <class Fn>
  void each_page(const void* address, u32 n_bytes, bool make, Fn&& fn);

  u32 first_ = 1;  // of the launch
  u32 now_ = 0;
  std::unordered_map<u64, std::unique_ptr<Page>> pages_;
  std::array<Recent, 256> recent_;
};

}  // namespace tarn::kernels::emulated
