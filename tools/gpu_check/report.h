// tools/gpu_check/report.h
//
// What gpu-check saw, step by step, and its two forms: JSON, written after every step (whole, under
// another name, then renamed, so that whoever is killed leaves valid JSON behind), and at the end a
// table in Markdown for tests/golden/gpu.
#pragma once

#include <rapidjson/document.h>

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::gpu_check {

inline constexpr int kExitAbsent = 77;  // of every program here: what it needs is not there

enum class Status : u8 {
  ok,
  failed,     // it ran and said no, or crashed
  timed_out,  // cut at its limit
  refused,    // 78: model, context or budget do not fit here
  absent,     // what it needs is not on this machine
  no_time,    // --minutes were over
};
const char* status_name(Status status);

struct Step {
  std::string name;  // "decode d4096 x4"
  Status status = Status::absent;
  std::string why;  // in words, unless ok
  f64 seconds = 0, limit_s = 0;
  std::string command;          // what was run
  rapidjson::Document figures;  // null where there are none
};

enum class Verdict : u8 { met, missed, absent };
const char* verdict_name(Verdict verdict);

struct Target {
  std::string name, wanted, seen;
  Verdict verdict = Verdict::absent;
};

struct Report {
  std::string date;    // UTC
  std::string bundle;  // what was packed, from the bundle's own file
  f64 minutes = 0;
  std::string state = "running";  // finished, interrupted
  std::vector<Step> steps;

  const Step* find(const std::string& name) const;                 // nullptr: not run
  const rapidjson::Value* figures(const std::string& name) const;  // of a step that is ok
};

// "decode d4096 x8", "decode d4096 x1 q8_0"
std::string decode_step_name(u32 depth, u32 n_parallel, const std::string& kv_type = "f16");
// "decode d32768 x1 pq"
std::string select_step_name(u32 depth);

std::string to_json(const Report& report);
std::string to_table(const Report& report);
std::vector<Target> targets_of(const Report& report);
// Whether a target rests on this step: one that does not, and ran out of its time, is no failure.
bool is_asked_for(const std::string& step);

// Throws tools::Failure.
void write_whole(const std::string& path, const std::string& text);

}  // namespace tarn::gpu_check
