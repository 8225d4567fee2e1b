// The thread that reads texts: renders conversations and tokenizes, one text after another, so that
// no step waits for a text. A text waits for a step where the ids of earlier ones fill the ring.
//
//   when broken  after a failed assertion in a text the thread is parked for ever, and texts are
//                refused. The engine, whose state no text touches, goes on
#pragma once

#include "runtime/service/common.h"

namespace tarn::service {

class TextThread {
 public:
  explicit TextThread(Common& common) : common_(common) {}
  TextThread(const TextThread&) = delete;
  TextThread& operator=(const TextThread&) = delete;

  Result<void> start(std::span<const u32> cpus);
  // After Common::text_ended.
  void end();

 private:
  static void on_assert(void* self, const AssertSite& site);
  void loop();
  void read(Request* request, Lock& lock);
  void refuse_texts();

  Common& common_;
  FatalSink sink_{};
  OsThread thread_{};
};

}  // namespace tarn::service
