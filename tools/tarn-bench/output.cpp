#include "tools/tarn-bench/output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "tools/support/engine_options.h"

namespace tarn::bench {
namespace {

std::string fixed(f64 value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return std::isfinite(value) ? text : "-";
}

constexpr const char* kConstant = "";

struct Column {
  const char* title;
  // nullptr: always shown; kConstant: hidden if all rows have one value; else hidden if all have
  // this value. One that an option gave is shown in any case.
  const char* hidden_if;
  std::function<std::string(const Row&)> value;
  bool Row::*is_given = nullptr;
};

std::vector<Column> columns() {
  return {
      {"model", nullptr, [](const Row& r) { return r.model_type; }},
      {"size", nullptr, [](const Row& r) { return tools::format_bytes(r.model_bytes); }},
      {"params", nullptr,
       [](const Row& r) { return fixed(static_cast<f64>(r.n_params) * 1e-9, 2) + " B"; }},
      {"backend", nullptr, [](const Row& r) { return r.backend() + (" " + r.isa); }},
      {"ngl", kConstant, [](const Row&) { return std::string("0"); }},
      {"threads", nullptr, [](const Row& r) { return std::to_string(r.n_threads); }},
      {"n_ubatch", kConstant, [](const Row& r) { return std::to_string(r.n_ubatch); }},
      {"type_k", kConstant, [](const Row& r) { return r.kv_type; }, &Row::is_kv_type_given},
      {"type_v", kConstant, [](const Row& r) { return r.kv_type; }, &Row::is_kv_type_given},
      {"kv", "computed", [](const Row& r) { return r.kv; }},
      {"select", "full",
       [](const Row& r) { return r.select + (r.reads_all() ? " (all KV read)" : ""); }},
      {"test", nullptr, [](const Row& r) { return r.test.name(); }},
      {"t/s", nullptr,
       [](const Row& r) {
         const Statistics s = r.tokens_per_s();
         return fixed(s.mean, 2) + " ± " + fixed(s.deviation, 2);
       }},
      {"MB/token", nullptr, [](const Row& r) { return fixed(r.bytes_per_token() * 1e-6, 1); }},
      {"GB/s", nullptr, [](const Row& r) { return fixed(r.bytes_per_s() * 1e-9, 2); }},
      {"share", nullptr, [](const Row& r) { return fixed(r.bandwidth_share(), 2); }},
      {"disk MB/token", "-",
       [](const Row& r) {
         return fixed(r.has_store ? r.per_token_of(&Sample::disk_bytes_read) * 1e-6 : NAN, 1);
       }},
      {"hits", "-", [](const Row& r) { return fixed(r.hit_rate(), 2); }},
  };
}

template <class Writer>
void write(const Row& r, Writer& w) {
  const auto text = [&](const char* key, const std::string& value) {
    w.Key(key);
    w.String(value.c_str(), static_cast<rapidjson::SizeType>(value.size()));
  };
  const auto number = [&](const char* key, u64 value) {
    w.Key(key);
    w.Uint64(value);
  };
  const auto boolean = [&](const char* key, bool value) {
    w.Key(key);
    w.Bool(value);
  };
  const auto real = [&](const char* key, f64 value) {
    w.Key(key);
    w.Double(value);
  };
  w.StartObject();
  text("build_commit", r.commit);
  number("build_number", 0);
  text("cpu_info", r.cpu_info);
  text("gpu_info", r.gpu_info);
  text("backends", r.backend());
  text("model_filename", r.model_path);
  text("model_type", r.model_type);
  number("model_size", r.model_bytes);
  number("model_n_params", r.n_params);
  number("n_batch", r.n_batch);
  number("n_ubatch", r.n_ubatch);
  number("n_threads", r.n_threads);
  text("cpu_mask", "0x0");
  boolean("cpu_strict", false);
  number("poll", 0);
  text("type_k", r.kv_type);
  text("type_v", r.kv_type);
  number("n_gpu_layers", 0);
  text("split_mode", "none");
  number("main_gpu", 0);
  boolean("no_kv_offload", false);
  boolean("flash_attn", true);
  text("devices", r.backend());
  text("tensor_split", "0.00");
  boolean("use_mmap", false);
  boolean("use_direct_io", true);
  boolean("embeddings", false);
  number("n_prompt", r.test.n_prompt);
  number("n_gen", r.test.n_gen);
  number("n_depth", r.test.n_depth);
  text("test_time", r.test_time);
  number("avg_ns", static_cast<u64>(r.ns().mean));
  number("stddev_ns", static_cast<u64>(r.ns().deviation));
  real("avg_ts", r.tokens_per_s().mean);
  real("stddev_ts", r.tokens_per_s().deviation);
  w.Key("samples_ns");
  w.StartArray();
  for (const Sample& sample : r.samples) w.Uint64(sample.ns);
  w.EndArray();
  w.Key("samples_ts");
  w.StartArray();
  for (const Sample& sample : r.samples) {
    w.Double(r.test.n_tokens() * 1e9 / static_cast<f64>(sample.ns));
  }
  w.EndArray();
  number("n_parallel", r.test.n_parallel);
  text("kv", r.kv);
  text("select", r.select);
  boolean("selected", r.select != "full" && !r.reads_all());
  boolean("verified", r.is_verified);
  const Row::PerToken per_token = r.per_token();
  real("slots_per_head", per_token.slots);
  real("select_ms", per_token.select_ms);
  real("gather_ms", per_token.gather_ms);
  real("attend_ms", per_token.attend_ms);
  real("first_token_s", r.mean_s(&Sample::first_ns));
  real("second_token_s", r.mean_s(&Sample::second_ns));
  real("kv_bytes_per_token", r.per_token_of(&Sample::kv_bytes));
  real("disk_bytes_per_token", r.per_token_of(&Sample::disk_bytes_read));
  real("disk_requests_per_token", r.per_token_of(&Sample::n_requests));
  real("disk_wait_ms", r.per_token_of(&Sample::wait_ns) * 1e-6);
  real("hit_rate", r.hit_rate());
  real("useful_share", r.useful_share());
  real("recall", r.recall);
  text("isa", r.isa);
  text("io", r.io);
  real("bytes_per_token", r.bytes_per_token());
  real("achieved_gb_per_s", r.bytes_per_s() * 1e-9);
  real("bandwidth_gb_per_s", r.bandwidth_bytes_per_s > 0 ? r.bandwidth_bytes_per_s * 1e-9 : NAN);
  real("bandwidth_share", r.bandwidth_share());
  number("plan_bytes", r.plan_bytes);
  number("peak_rss_bytes", r.peak_rss_bytes);
  number("driver_bytes", r.driver_bytes);
  number("driver_limit_bytes", r.driver_limit_bytes);
  w.EndObject();
}

// Bytes in a row of the table; "±" is two bytes and one column.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Statistics Row::tokens_per_s() const {
  std::vector<f64> values;
  for (const Sample& s : samples) values.push_back(test.n_tokens() * 1e9 / static_cast<f64>(s.ns));
  return statistics_of(values);
}

Statistics Row::ns() const {
  std::vector<f64> values;
  for (const Sample& s : samples) values.push_back(static_cast<f64>(s.ns));
  return statistics_of(values);
}

f64 Row::sum(u64 Sample::*of) const {
  f64 total = 0;
  for (const Sample& s : samples) total += static_cast<f64>(s.*of);
  return total;
}

f64 Row::per_token_of(u64 Sample::*of) const {
  return sum(of) / static_cast<f64>(samples.size() * test.n_tokens());
}

f64 Row::hit_rate() const {
  const bool is_full = select == "full";
  const f64 n_hits = sum(is_full ? &Sample::n_hits : &Sample::n_cached);
  const f64 n = is_full ? n_hits + sum(&Sample::n_waited) : sum(&Sample::n_far);
  return n > 0 ? n_hits / n : NAN;
}

f64 Row::useful_share() const {
  const f64 bytes = sum(&Sample::gathered_bytes);
  return bytes > 0 ? sum(&Sample::gathered_used_bytes) / bytes : NAN;
}

f64 Row::mean_s(u64 Sample::*ns) const {
  return sum(ns) / (1e9 * static_cast<f64>(samples.size()));
}

Row::PerToken Row::per_token() const {
  const f64 n = std::max(test.n_gen * test.n_parallel, 1u);
  return {.slots = sum(&Sample::n_slots_chosen) / static_cast<f64>(samples.size()) / n /
                   std::max(n_heads_select, 1u),
          .select_ms = mean_s(&Sample::select_ns) * 1e3 / n,
          .gather_ms = mean_s(&Sample::gather_ns) * 1e3 / n,
          .attend_ms = mean_s(&Sample::attend_ns) * 1e3 / n};
}

bool Row::reads_all() const {
  const f64 n_slots = per_token().slots;
  return select != "full" && (n_slots == 0 || n_slots >= test.n_depth);
}

f64 Row::bytes_per_token() const {
  return per_token_of(&Sample::weight_bytes) + per_token_of(&Sample::kv_bytes);
}

f64 Row::bytes_per_s() const {
  return (sum(&Sample::weight_bytes) + sum(&Sample::kv_bytes)) / (sum(&Sample::ns) * 1e-9);
}

f64 Row::bandwidth_share() const {
  const bool memory_bound = test.n_prompt == 0;
  if (!memory_bound || bandwidth_bytes_per_s <= 0) return NAN;
  const f64 share = bytes_per_s() / bandwidth_bytes_per_s;
  return share <= 1 ? share : NAN;
}

std::string to_markdown(const std::vector<Row>& rows) {
  std::vector<Column> shown;
  for (const Column& column : columns()) {
    const std::string first = column.value(rows.front());
    const bool varies = std::any_of(rows.begin(), rows.end(),
                                    [&](const Row& row) { return column.value(row) != first; });
    const bool hides =
        column.hidden_if != nullptr && (*column.hidden_if == '\0' || first == column.hidden_if);
    const bool is_given = column.is_given != nullptr && rows.front().*column.is_given;
    if (varies || is_given || !hides) shown.push_back(column);
  }
  std::string head = "|", rule = "|";
  std::vector<std::string> lines(rows.size(), "|");
  for (const Column& column : shown) {
    size_t width = std::char_traits<char>::length(column.title);
    for (const Row& row : rows) width = std::max(width, width_of(column.value(row)));
    const auto cell = [&](const std::string& text) {
      return " " + std::string(width - width_of(text), ' ') + text + " |";
    };
    head += cell(column.title);
    rule += " " + std::string(width - 1, '-') + ": |";
    for (size_t i = 0; i < rows.size(); ++i) lines[i] += cell(column.value(rows[i]));
  }
  std::string out = head + "\n" + rule + "\n";
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::string to_json(const std::vector<Row>& rows) {
  rapidjson::StringBuffer buffer;
  tools::JsonWriter<rapidjson::PrettyWriter<rapidjson::StringBuffer>> writer(buffer);
  writer.SetIndent(' ', 2);
  writer.StartArray();
  for (const Row& row : rows) write(row, writer);
  writer.EndArray();
  return std::string(buffer.GetString()) + "\n";
}

void write_row(const Row& row, RowWriter& writer) { write(row, writer); }

}  // namespace tarn::bench
