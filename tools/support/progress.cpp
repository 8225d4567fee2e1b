#include "tools/support/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tarn::tools {
namespace {

constexpr f64 kFirstS = 0.5, kAgainS = 0.1;   // on a terminal
constexpr f64 kLineS = 10, kLineShare = 0.1;  // elsewhere
constexpr f64 kLeftFromS = 2;                 // a rate of less time means nothing
constexpr f64 kMinutesFromS = 180;

}  // namespace

Progress::Progress() : Progress(own_clock_, isatty(STDERR_FILENO) != 0, stderr) {}

Progress::Progress(Clock& clock, bool on_terminal, std::FILE* out)
    : clock_(clock), out_(out), start_s_(now_s()), shown_s_(start_s_), on_terminal_(on_terminal) {}

f64 Progress::now_s() const { return static_cast<f64>(clock_.now_ns()) * 1e-9; }

bool Progress::is_due() const {
  const f64 at_s = now_s(), since_s = at_s - shown_s_;
  if (on_terminal_) return since_s >= (is_shown_ ? kAgainS : kFirstS);
  return since_s >= std::max(kLineS, kLineShare * (at_s - start_s_));
}

void Progress::show(std::string_view text) {
  if (is_due()) print(text);
}

void Progress::show(std::string_view text, f64 share_done) {
  if (!is_due()) return;
  const f64 spent_s = now_s() - start_s_;
  if (share_done <= 0 || spent_s < kLeftFromS) return print(text);
  const f64 left_s = spent_s * (1 / std::min(share_done, 1.0) - 1);
  const bool in_minutes = left_s >= kMinutesFromS;
  char line[256];
  const int n =
      std::snprintf(line, sizeof line, "%.*s, %.0f %s left", static_cast<int>(text.size()),
                    text.data(), in_minutes ? left_s / 60 : left_s, in_minutes ? "min" : "s");
  print({line, std::min<size_t>(static_cast<size_t>(n), sizeof line - 1)});
}

void Progress::show_bytes(const char* what, u64 done_bytes, u64 total_bytes) {
  if (!is_due() || total_bytes == 0) return;
  const f64 share = static_cast<f64>(done_bytes) / static_cast<f64>(total_bytes);
  char text[96];
  std::snprintf(text, sizeof text, "%s %.0f %% of %.1f GB", what, 100 * share,
                static_cast<f64>(total_bytes) * 1e-9);
  show(text, share);
}

void Progress::print(std::string_view text) {
  std::fprintf(out_, on_terminal_ ? "\r%.*s\033[K" : "%.*s\n", static_cast<int>(text.size()),
               text.data());
  std::fflush(out_);
  shown_s_ = now_s();
  is_shown_ = true;
}

void Progress::clear() {
  if (is_shown_ && on_terminal_) std::fprintf(out_, "\r\033[K");
  is_shown_ = false;
}

}  // namespace tarn::tools
