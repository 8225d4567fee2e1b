#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "tools/support/input.h"
#include "tools/support/percentile.h"
#include "tools/support/utc.h"
#include "tools/tarn/softmax.h"
#include "tools/tarn/verify.h"

namespace tarn::tools {

void Loss::add(std::span<const f32> base, std::span<const f32> ours) {
  const Softmax theirs = softmax_of(base), own = softmax_of(ours);
  kls_.push_back(std::max(kl_divergence(base, theirs, ours, own), 0.0));
  n_agree_ += theirs.argmax == own.argmax ? 1u : 0u;
}

f64 Loss::kl_mean() const {
  f64 sum = 0;
  for (const f64 kl : kls_) sum += kl;
  return kls_.empty() ? 0.0 : sum / static_cast<f64>(kls_.size());
}

f64 Loss::kl_p99() const { return kls_.empty() ? 0.0 : percentile(kls_, 99); }

f64 Loss::top1() const {
  return kls_.empty() ? 1.0 : static_cast<f64>(n_agree_) / static_cast<f64>(kls_.size());
}

namespace {

const char* exact_name(const VerifyCommand& command) {
  return command.reuse ? "full prefill" : "full attention";
}

}  // namespace

std::string Score::why_not(const VerifyCommand& command, const Score& exact) const {
  if (exact.facts_tell(command) || !loss.is_within(command)) return "failed";
  return std::string("unknown: close, but ") + exact_name(command) + " finds no fact either";
}

std::string Score::columns() const {
  char text[64];
  if (loss.is_empty()) {
    std::snprintf(text, sizeof text, "%9s %9s %7s", "-", "-", "-");
  } else {
    std::snprintf(text, sizeof text, "%9.2g %9.2g %6.1f%%", loss.kl_mean(), loss.kl_p99(),
                  100 * loss.top1());
  }
  return text;
}

void Score::write_loss(Json& json) const {
  json.key("kl_mean").real(loss.kl_mean());
  json.key("kl_p99").real(loss.kl_p99());
  json.key("top1_agreement").real(loss.top1());
}

std::string Score::text() const {
  char text[256];
  std::snprintf(
      text, sizeof text,
      "KL %.3g in the mean and %.3g at 99 %%, best token equal in %.1f %%, %u of %u facts",
      loss.kl_mean(), loss.kl_p99(), 100 * loss.top1(), n_right, n_facts);
  return text;
}

void throw_facts_tell_nothing(const VerifyCommand& command) {
  throw Failure{kExitRefused,
                std::string(exact_name(command)) +
                    " finds no planted fact either, so facts are no test: with --needles 0 only KL "
                    "and the best tokens count" +
                    no_record_of(command)};
}

bool are_finite(std::span<const f32> logits) { return std::isfinite(softmax_of(logits).log_sum); }

void throw_not_finite(const std::string& who) {
  throw Failure{kExitRefused, who +
                                  ": logits are not finite numbers: the weights are damaged, get "
                                  "the file again"};
}

std::string no_record_of(const VerifyCommand& command) {
  return command.record_file.empty() ? "" : "; " + command.record_file + " is not written";
}

void write_record(const VerifyCommand& command, const std::vector<std::string>& about,
                  const Config& config, const std::vector<std::string>& keys) {
  std::string text = "# tarn verify, " + utc_now() + ": ";
  for (const std::string& line : about) text += (text.back() == '\n' ? "# " : "") + line + "\n";
  std::istringstream lines(to_toml(config));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("select.index_delay_tokens")) continue;
    const auto begins_with = [&](const std::string& key) { return line.starts_with(key); };
    if (std::ranges::any_of(keys, begins_with)) text += line + "\n";
  }
  write_file(command.record_file, text.data(), text.size());
}

}  // namespace tarn::tools
