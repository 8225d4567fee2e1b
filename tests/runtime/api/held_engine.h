// Holds an engine's thread in a call, as a long step would.
#pragma once

#include <atomic>
#include <thread>

#include "runtime/api/instance.h"

namespace tarn::test {

// For its lifetime.
class Held {
 public:
  explicit Held(tarn_engine* engine)
      : thread_([this, engine] {
          auto& service = reinterpret_cast<api::Instance*>(engine)->service;
          static_cast<void>(service.call([this]() -> Result<void> {
            is_held_ = true;
            while (!is_over_.load()) std::this_thread::yield();
            return {};
          }));
        }) {
    while (!is_held_.load()) std::this_thread::yield();
  }
  ~Held() {
    is_over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> is_held_{false}, is_over_{false};
  std::thread thread_;
};

}  // namespace tarn::test
