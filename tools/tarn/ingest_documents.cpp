#include "tools/tarn/ingest_documents.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "runtime/text/unicode.h"
#include "tools/support/count.h"
#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/input.h"
#include "tools/support/json.h"

namespace tarn::tools {
namespace {

// The sum over all read documents.
struct Sum {
  u64 n_read = 0, n_tokens = 0, n_reused = 0, bytes_written = 0;
  f64 seconds = 0;
};

Sum sum_of(const std::vector<Document>& documents) {
  Sum sum;
  for (const Document& document : documents) {
    if (document.failure) continue;
    ++sum.n_read;
    sum.n_tokens += document.n_tokens;
    sum.n_reused += document.n_reused;
    sum.bytes_written += document.bytes_written;
    sum.seconds += document.seconds;
  }
  return sum;
}

void write_json(const std::vector<Document>& documents, const Sum& sum,
                std::optional<u64> store_bytes) {
  Json json;
  json.begin_object();
  json.key("files").begin_array();
  for (const Document& document : documents) {
    json.begin_object();
    json.key("name").text(escaped(document.name));
    json.key("tokens").number(document.n_tokens);
    json.key("reused").number(document.n_reused);
    json.key("seconds").real(document.seconds);
    json.key("bytes_written").number(document.bytes_written);
    if (document.failure) json.key("error").text(document.failure->text);
    json.end_object();
  }
  json.end_array();
  json.key("seconds").real(sum.seconds);
  json.key("bytes_written").number(sum.bytes_written);
  if (store_bytes) json.key("store_bytes").number(*store_bytes);
  json.end_object();
  print_json(json);
}

void print_sum(const Sum& sum, std::optional<u64> store_bytes) {
  std::printf("files: %llu, %llu tokens, %llu of them reused, %.2f s, %s written",
              count(sum.n_read), count(sum.n_tokens), count(sum.n_reused), sum.seconds,
              format_bytes(sum.bytes_written).c_str());
  if (store_bytes) {
    std::printf("; %s takes %s", kSessionsFile, format_bytes(*store_bytes).c_str());
  }
  std::printf("\n");
}

}  // namespace

Document& add_document(std::vector<Document>& documents, const std::string& path,
                       const std::string& as, u64 number) {
  if (path == "-" && as.empty()) {
    throw Failure{kExitUsage, "-: standard input has no name: give it one with --as NAME"};
  }
  const std::string own_name = std::filesystem::path(path).filename().string();
  Document document;
  document.path = path;
  document.name = as.empty() ? own_name : as;
  if (number > 0) document.name += "#" + std::to_string(number);
  const auto has_its_name = [&](const Document& other) { return other.name == document.name; };
  if (std::ranges::any_of(documents, has_its_name)) {
    throw Failure{kExitUsage, "two files have the name " + escaped(document.name) +
                                  ": ingest one of them by itself, with --as NAME"};
  }
  return documents.emplace_back(std::move(document));
}

void fail_with(Document& document, ExitCode code, const std::string& why) {
  document.failure = Failure{code, why};
  print_failure("tarn", escaped(document.path) + ": " + why);
}

void read_by_daemon(const DaemonClient& daemon, Document& document, bool replaces) {
  try {
    const std::string text = read_file(document.path);
    if (text.empty()) return fail_with(document, kExitRefused, "is empty: is it the right file?");
    if (!text::is_utf8(text)) {
      return fail_with(document, kExitRefused, "is not UTF-8: convert it first");
    }
    Json request;
    request.begin_object();
    request.key("name").text(document.name);
    request.key("content").text(text);
    if (replaces) request.key("replace").boolean(true);
    request.end_object();
    const rapidjson::Document reply =
        daemon.json("POST", "/v1/tarn/ingest", std::string(request.str()));
    document.n_tokens = count_of(reply, "tokens");
    document.n_reused = count_of(reply, "reused");
    document.bytes_written = count_of(reply, "bytes_written");
    document.seconds = number_of(reply, "seconds");
  } catch (const Failure& failure) {
    fail_with(document, failure.code, failure.text);
  }
}

void print(const Document& document) {
  std::printf("%s: %llu tokens, %llu of them reused, %.2f s, %s written\n",
              escaped(document.name).c_str(), count(document.n_tokens), count(document.n_reused),
              document.seconds, format_bytes(document.bytes_written).c_str());
  std::fflush(stdout);
}

void report(const std::vector<Document>& documents, bool json, std::optional<u64> store_bytes) {
  const Sum sum = sum_of(documents);
  if (json) write_json(documents, sum, store_bytes);
  if (!json && sum.n_read > 0) print_sum(sum, store_bytes);
  const auto failed = std::ranges::find_if(
      documents, [](const Document& document) { return document.failure.has_value(); });
  if (failed == documents.end()) return;
  throw Failure{failed->failure->code, "files that are not in the store: " +
                                           std::to_string(documents.size() - sum.n_read) + " of " +
                                           std::to_string(documents.size())};
}

}  // namespace tarn::tools
