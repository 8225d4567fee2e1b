// Tokens by all KV and by selection, and the disk.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime/control/costs.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "tools/support/least_squares.h"
#include "tools/support/own_engine.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/tarn/calibrate.h"

namespace tarn::tools {
namespace {

constexpr u32 kChunkTokens = 512;  // and that share of them computed anew: CacheBlend's defaults
constexpr f64 kChunkShare = 0.15;
// At each length, until there are enough of them and so much time is over; the fastest one counts,
// which others disturb least.
constexpr u32 kTokensMin = 12, kTokensMax = 96;
constexpr f64 kTokensS = 0.4;

// Rows that no clustering finds equal. How long a step takes does not depend on what they hold.
void fill_rows(void*, const step::KvRows& rows) {
  for (u32 row = 0; row < rows.n; ++row) {
    const u32 slot = rows.first_slot + row;
    for (const step::Rows& part : {rows.k, rows.v}) {
      f32* data = step::from_row(part, row).data;
      for (u64 i = 0; i < part.stride; ++i) {
        const u32 mixed = (slot * 2'654'435'761u + static_cast<u32>(i) * 40'503u) >> 8;
        data[i] = static_cast<f32>(mixed % 2001) / 1000.0f - 1.0f;
      }
    }
  }
}

class Tokens {
 public:
  Tokens(const std::string& model, const Config& config, Progress& progress)
      : own_(model, config), progress_(progress) {}

  // The time of one token behind n of them.
  f64 measure(u32 n, bool selects) {
    engine::Engine& engine = own_.get();
    const engine::SessionIdx session = value_of(engine.sessions().create());
    const std::vector<u32> ids(n, 1);
    value_of(lab::Probe(engine).fill_kv(session, ids, {&fill_rows, nullptr}));
    value_of(engine.sessions().generate(
        session,
        {.sampler = {.wants_logprob = false}, .max_tokens = kTokensMax, .ignore_end = true}));
    f64 least_s = 0, all_s = 0;
    for (u32 n_timed = 0; engine.has_work() && (n_timed < kTokensMin || all_s < kTokensS);) {
      if (progress_.is_due()) {
        progress_.show(std::string(selects ? "tokens by selection" : "tokens by all KV") +
                       ", behind " + std::to_string(n) + ": " + std::to_string(n_timed) + " of " +
                       std::to_string(kTokensMin));
      }
      const engine::StepTrace& trace = step(engine);
      const bool is_one = trace.n_rows == 1 && trace.n_decode_rows == 1;
      if (is_one && (trace.n_slots_chosen > 0) == selects && trace.n_cluster_units == 0) {
        const f64 seconds = static_cast<f64>(trace.end_ns - trace.start_ns) * 1e-9;
        least_s = least_s == 0 ? seconds : std::min(least_s, seconds);
        all_s += seconds;
        ++n_timed;
      }
      drain(engine, session);
    }
    engine.sessions().request_cancel(session);
    while (engine.has_work()) {
      step(engine);
      drain(engine, session);
    }
    engine.sessions().destroy(session);
    if (least_s == 0) throw Failure{kExitInternal, "no token was read in the way to be measured"};
    return least_s;
  }

 private:
  static void drain(engine::Engine& engine, engine::SessionIdx session) {
    engine::Event event;
    std::array<char, engine::EventRing::kTextBytes> text;
    while (engine.sessions().take_event(session, &event, text)) {
      const bool is_end = event.type == engine::EventType::done;
      if (is_end && event.done.finish == engine::Finish::error)
        throw_ended_early(event.done.status);
    }
  }

  OwnEngine own_;
  Progress& progress_;
};

// seconds = step + token * n, neither below 0.
void fit_line(const std::vector<TokenTime>& times, f64 TokenTime::*seconds, u64* step_ns,
              u64* token_ps) {
  std::vector<std::vector<f64>> points;
  std::vector<f64> y;
  for (const TokenTime& t : times) {
    points.push_back({1, static_cast<f64>(t.n_tokens)});
    y.push_back(t.*seconds);
  }
  const std::vector<f64> fit = least_squares(points, y);
  *step_ns = std::max<u64>(1, rounded(fit[0] * 1e9));
  *token_ps = rounded(fit[1] * 1e12);
}

}  // namespace

std::vector<TokenTime> measure_tokens(const std::string& model, Config config, Progress& progress) {
  SelectConfig& select = config.select;
  if (select.is_full()) lab::set_method(select, "pq");
  const u32 n_read = select.n_sinks + select.n_local + select.k;
  const u32 least = n_read + (8u << select.code_bits);
  const u64 needed = u64{least} + least / 4 + kTokensMax + 8;
  if (select.context_divisor != 0 || config.context_tokens < needed) return {};
  const u32 most = static_cast<u32>(config.context_tokens) - kTokensMax - 8;
  select.context_min = 1;
  select.index_delay_tokens = 1;
  select.iterations = 3;
  const u32 shortest = std::max(least, most / 4);
  std::vector<TokenTime> times = {
      {.n_tokens = shortest}, {.n_tokens = (shortest + most) / 2}, {.n_tokens = most}};
  {
    Tokens tokens(model, config, progress);
    for (TokenTime& time : times) time.selected_s = tokens.measure(time.n_tokens, true);
  }
  select = {};
  Tokens tokens(model, config, progress);
  for (TokenTime& time : times) time.all_s = tokens.measure(time.n_tokens, false);
  return times;
}

void fit_tokens(const std::vector<TokenTime>& times, BoxConfig* box) {
  if (times.empty()) return;
  fit_line(times, &TokenTime::all_s, &box->decode_step_ns, &box->decode_token_ps);
  fit_line(times, &TokenTime::selected_s, &box->select_step_ns, &box->select_token_ps);
}

void print_tokens(const std::vector<TokenTime>& times, const BoxConfig& box) {
  const auto fitted_s = [](u64 step_ns, u64 token_ps, u32 n) {
    return static_cast<f64>(step_ns) * 1e-9 + static_cast<f64>(token_ps) * 1e-12 * n;
  };
  char what[64];
  for (const TokenTime& t : times) {
    std::snprintf(what, sizeof what, "a token behind %u", t.n_tokens);
    print_fitted(what, t.all_s, fitted_s(box.decode_step_ns, box.decode_token_ps, t.n_tokens));
    std::snprintf(what, sizeof what, "by selection, behind %u", t.n_tokens);
    print_fitted(what, t.selected_s, fitted_s(box.select_step_ns, box.select_token_ps, t.n_tokens));
  }
  if (times.empty()) return;
  const u32 from = control::selection_pays_from(box);
  if (from == control::kNever) return (void)std::puts("selection is slower at every length");
  std::printf("selection is faster from %u tokens on\n", from);
}

// Each size counts the same, so the errors are relative.
void fit_disk(const std::vector<DiskReads>& reads, BoxConfig* box) {
  std::vector<std::vector<f64>> points;
  points.reserve(reads.size());
  for (const DiskReads& r : reads)
    points.push_back({1 / r.seconds, static_cast<f64>(r.bytes) / r.seconds});
  const std::vector<f64> fit = least_squares(points, std::vector<f64>(reads.size(), 1));
  box->disk_request_ns = rounded(fit[0] * 1e9);
  box->disk_byte_fs = rounded(fit[1] * 1e15);
}

void print_disk(const std::vector<DiskReads>& reads, const BoxConfig& box, const KvGroups& kv) {
  const control::Costs costs = control::costs_of(box, kv.n_layers, kChunkTokens);
  char what[64];
  for (const DiskReads& r : reads) {
    std::snprintf(what, sizeof what, "a read of %llu KiB, %.2f GB/s",
                  static_cast<unsigned long long>(r.bytes / kKiB), r.bytes_per_s() * 1e-9);
    print_fitted(what, r.seconds, costs.load_s(1, static_cast<f64>(r.bytes)));
  }
  const f64 bytes = static_cast<f64>(kv.group_bytes);
  std::printf("KV is read in %.0f KiB: %.2f GB/s\n", bytes / 1024,
              bytes / costs.load_s(1, bytes) * 1e-9);
  const f64 n_reads = std::ceil(f64{kChunkTokens} / kv.page_tokens) * kv.n_layers;
  constexpr f64 kRequests = 2;  // of a group: its record's head, and the payload
  const f64 load_s = costs.load_s(kRequests * n_reads, n_reads * bytes);
  const f64 limit_s = kChunkShare * costs.prefill_s(0, kChunkTokens);
  // Memory costs more than a disk, by whatever measure.
  const std::array<control::StorageDevice, 2> devices = {{{.cost = 1}, {.load_s = load_s}}};
  std::printf(
      "a chunk of %u tokens is read in %.1f ms, and %.0f %% of it computed in %.1f ms: "
      "chunks belong %s\n",
      kChunkTokens, 1e3 * load_s, 100 * kChunkShare, 1e3 * limit_s,
      control::choose_device(devices, limit_s) == 1 ? "on the disk" : "in memory");
}

}  // namespace tarn::tools
