#include "tools/gpu_check/report.h"

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"

namespace tarn::gpu_check {
namespace {

using Writer = tools::JsonWriter<rapidjson::PrettyWriter<rapidjson::StringBuffer>>;

void put(Writer& w, const char* key, const std::string& text) {
  w.Key(key);
  w.String(text.c_str(), static_cast<rapidjson::SizeType>(text.size()));
}

void put(Writer& w, const char* key, f64 value) {
  w.Key(key);
  w.Double(value);
}

void put_step(Writer& w, const Step& step) {
  w.StartObject();
  put(w, "name", step.name);
  put(w, "status", status_name(step.status));
  if (!step.why.empty()) put(w, "why", step.why);
  put(w, "seconds", step.seconds);
  if (step.limit_s > 0) put(w, "limit_s", step.limit_s);
  if (!step.command.empty()) put(w, "command", step.command);
  if (!step.figures.IsNull()) {
    w.Key("figures");
    step.figures.Accept(w);
  }
  w.EndObject();
}

}  // namespace

const char* status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::failed:
      return "failed";
    case Status::timed_out:
      return "timed_out";
    case Status::refused:
      return "refused";
    case Status::absent:
      return "absent";
    case Status::no_time:
      return "no_time";
  }
  return "";
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::met:
      return "met";
    case Verdict::missed:
      return "missed";
    case Verdict::absent:
      return "absent";
  }
  return "";
}

const Step* Report::find(const std::string& name) const {
  for (const Step& step : steps) {
    if (step.name == name) return &step;
  }
  return nullptr;
}

const rapidjson::Value* Report::figures(const std::string& name) const {
  const Step* step = find(name);
  if (step == nullptr || step->status != Status::ok || step->figures.IsNull()) return nullptr;
  return &step->figures;
}

std::string decode_step_name(u32 depth, u32 n_parallel, const std::string& kv_type) {
  return "decode d" + std::to_string(depth) + " x" + std::to_string(n_parallel) +
         (kv_type == "f16" ? "" : " " + kv_type);
}

std::string select_step_name(u32 depth) { return decode_step_name(depth, 1) + " pq"; }

std::string to_json(const Report& report) {
  rapidjson::StringBuffer buffer;
  Writer w(buffer);
  w.SetIndent(' ', 1);
  w.StartObject();
  put(w, "tool", "gpu-check");
  put(w, "date", report.date);
  put(w, "bundle", report.bundle);
  put(w, "minutes", report.minutes);
  put(w, "state", report.state);
  w.Key("targets");
  w.StartArray();
  for (const Target& target : targets_of(report)) {
    w.StartObject();
    put(w, "name", target.name);
    put(w, "wanted", target.wanted);
    put(w, "seen", target.seen);
    put(w, "verdict", verdict_name(target.verdict));
    w.EndObject();
  }
  w.EndArray();
  w.Key("steps");
  w.StartArray();
  for (const Step& step : report.steps) put_step(w, step);
  w.EndArray();
  w.EndObject();
  return std::string(buffer.GetString(), buffer.GetSize()) + "\n";
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  tools::write_file(part, text.data(), text.size());
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    throw tools::Failure{tools::kExitIo, "cannot write " + path + ": " + std::strerror(errno)};
  }
}

}  // namespace tarn::gpu_check
