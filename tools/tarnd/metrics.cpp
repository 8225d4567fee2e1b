#include "tools/tarnd/metrics.h"

#include "tools/support/json.h"
#include "tools/tarnd/network_memory.h"

namespace tarn::daemon {
namespace {

class Text {
 public:
  void counter(const char* name, const char* help, f64 value) { row(name, "counter", help, value); }
  void gauge(const char* name, const char* help, f64 value) { row(name, "gauge", help, value); }
  void begin(const char* name, const char* type, const char* help) {
    out_.append("# HELP ").append(name).append(" ").append(help);
    out_.append("\n# TYPE ").append(name).append(" ").append(type) += '\n';
  }
  void value(const std::string& name, f64 value) {
    char text[40];
    char* const end = std::to_chars(text, text + sizeof text, value).ptr;
    out_.append(name).append(" ").append(text, end) += '\n';
  }
  void histogram(const std::string& name, const char* help, const Histogram& of) {
    begin(name.c_str(), "histogram", help);
    u64 n = 0;
    for (size_t i = 0; i < of.kBounds_s.size(); ++i) {
      n += of.counts()[i];
      char bound[40];
      char* const end = std::to_chars(bound, bound + sizeof bound, of.kBounds_s[i]).ptr;
      value(name + "_bucket{le=\"" + std::string(bound, end) + "\"}", static_cast<f64>(n));
    }
    value(name + "_bucket{le=\"+Inf\"}", static_cast<f64>(of.n()));
    value(name + "_sum", of.sum_s());
    value(name + "_count", static_cast<f64>(of.n()));
  }
  std::string take() { return std::move(out_); }

 private:
  void row(const char* name, const char* type, const char* help, f64 number) {
    begin(name, type, help);
    value(name, number);
  }
  std::string out_;
};

f64 real(u64 value) { return static_cast<f64>(value); }
f64 per_second(u64 n, u64 ns) { return ns == 0 ? 0 : real(n) / tools::seconds_of(ns); }

void put_llama(const MetricsFacts& facts, Text& text) {
  const Answers::Totals& t = facts.totals;
  const tarn_engine_status& s = facts.status;
  const u64 n_read = t.n_prompt_tokens - t.n_reused_tokens;
  text.counter("llamacpp:prompt_tokens_total", "Prompt tokens that were computed.", real(n_read));
  text.counter("llamacpp:prompt_seconds_total", "Time to first tokens.",
               tools::seconds_of(t.prefill_ns));
  text.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens a second, on average.",
             per_second(n_read, t.prefill_ns));
  text.counter("llamacpp:tokens_predicted_total", "Tokens generated.", real(t.n_generated));
  text.counter("llamacpp:tokens_predicted_seconds_total", "Time of generating.",
               tools::seconds_of(t.decode_ns));
  text.gauge("llamacpp:predicted_tokens_seconds", "Generated tokens a second, on average.",
             per_second(t.n_generated, t.decode_ns));
  text.gauge("llamacpp:requests_processing", "Sessions that compute or generate.",
             real(s.n_running));
  text.gauge("llamacpp:requests_deferred", "Sessions that wait for their turn.", real(s.n_waiting));
  text.counter("llamacpp:n_decode_total", "Steps of the engine.", real(s.n_steps));
}

void put_ours(const MetricsFacts& facts, Text& text) {
  const tarn_engine_status& s = facts.status;
  text.begin("tarn_replies_total", "counter", "Replies, by HTTP status.");
  for (const auto& [status, n] : facts.counts.replies) {
    text.value("tarn_replies_total{status=\"" + std::to_string(status) + "\"}", real(n));
  }
  text.counter("tarn_clients_gone_total", "Clients that left before the end of their reply.",
               real(facts.counts.n_gone));
  text.counter("tarn_reused_tokens_total", "Prompt tokens whose KV was there.",
               real(facts.totals.n_reused_tokens));
  text.gauge("tarn_requests", "Requests being answered.", real(facts.n_requests));
  text.gauge("tarn_connections", "Open connections.", real(facts.n_connections));
  text.gauge("tarn_network_bytes", "Network memory in use.", real(NetworkMemory::used_bytes()));
  text.gauge("tarn_network_bytes_peak", "Network memory used at most.",
             real(NetworkMemory::peak_bytes()));
  text.gauge("tarn_network_bytes_max", "Network memory that may be used.",
             real(NetworkMemory::limit_bytes()));
  text.gauge("tarn_sessions", "Open sessions of the engine.", real(s.n_sessions));
  text.gauge("tarn_kv_groups_free", "Groups of KV that are free or kept for reuse alone.",
             real(s.kv_groups_free));
  text.gauge("tarn_kv_groups_max", "Groups of KV.", real(s.kv_groups_max));
  text.histogram("tarn_first_token_seconds", "From a request's head to its first token.",
                 facts.counts.first_token);
  text.histogram("tarn_token_seconds", "Between two tokens of an answer, on its average.",
                 facts.totals.between_tokens);
  text.histogram("tarn_queue_seconds", "From a prompt's coming to its turn.", facts.totals.wait);
  text.histogram("tarn_request_seconds", "From a request's head to the end of its reply.",
                 facts.counts.reply);
  text.gauge("tarn_store_bytes", "Bytes of the store's records.", real(s.store_bytes));
  text.gauge("tarn_store_bytes_max", "Bytes that the store may have.", real(s.store_bytes_max));
  text.counter("tarn_store_read_bytes_total", "Bytes read from the store.",
               real(s.store_bytes_read));
  text.counter("tarn_store_written_bytes_total", "Bytes written to the store.",
               real(s.store_bytes_written));
  text.counter("tarn_store_evictions_total", "Records of the store that gave way to newer ones.",
               real(s.store_evictions));
  text.begin("tarn_store", "gauge", "State of the store: none, on, read-only or off.");
  text.value("tarn_store{state=\"" + std::string(s.store) + "\"}", 1);
  if (s.cpu_mhz > 0) text.gauge("tarn_cpu_mhz", "Clock of the slowest CPU.", s.cpu_mhz);
  if (s.gpu_mhz > 0) text.gauge("tarn_gpu_mhz", "Clock of the board's GPU.", s.gpu_mhz);
  if (s.hottest_zone[0] != '\0') {
    text.begin("tarn_hottest_celsius", "gauge", "Temperature of the hottest thermal zone.");
    text.value("tarn_hottest_celsius{zone=\"" + std::string(s.hottest_zone) + "\"}",
               s.hottest_millidegrees * 1e-3);
  }
  text.gauge("tarn_throttling", "Cooling devices that slow down what computes now.",
             s.n_throttling);
}

}  // namespace

std::string metrics_text(const MetricsFacts& facts) {
  Text text;
  put_llama(facts, text);
  put_ours(facts, text);
  return text.take();
}

}  // namespace tarn::daemon
