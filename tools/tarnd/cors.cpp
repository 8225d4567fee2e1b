#include "tools/tarnd/cors.h"

#include <algorithm>
#include <iterator>

namespace tarn::daemon {
namespace {

constexpr std::string_view kAlways[] = {"authorization", "content-type", "x-api-key"};
constexpr std::string_view kOthers[] = {"accept", "cache-control", "idempotency-key",
                                        "x-request-id"};
constexpr std::string_view kPrefixes[] = {"openai-", "x-stainless-"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return out;
}

bool is_name_char(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }

bool may_come(const std::string& name) {
  if (!std::ranges::all_of(name, is_name_char)) return false;
  return std::ranges::find(kOthers, name) != std::end(kOthers) ||
         std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

bool is_preflight(const Head& head) {
  return head.method == "OPTIONS" && !head.field("origin").empty() &&
         !head.field("access-control-request-method").empty();
}

std::string preflight_fields(std::string_view asked_names) {
  std::string names;
  for (const std::string_view name : kAlways) {
    names.append(names.empty() ? "" : ", ").append(name);
  }
  while (!asked_names.empty()) {
    const size_t end = std::min(asked_names.find(','), asked_names.size());
    std::string_view name = asked_names.substr(0, end);
    asked_names.remove_prefix(std::min(asked_names.size(), end + 1));
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const std::string asked = lower(name);
    if (may_come(asked)) names.append(", ").append(asked);
  }
  return "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE\r\nAccess-Control-Allow-Headers: " +
         names + "\r\nAccess-Control-Max-Age: 600\r\n";
}

std::string cors_fields(std::string_view origin) {
  return "Access-Control-Allow-Origin: " + std::string(origin) +
         "\r\nAccess-Control-Expose-Headers: X-Request-Id, Retry-After\r\nVary: Origin\r\n";
}

}  // namespace tarn::daemon
