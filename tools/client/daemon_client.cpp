#include "tools/client/daemon_client.h"

#include <cstdio>

#include "tools/client/event_reader.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"

namespace tarn::tools {
namespace {

[[noreturn]] void fail_with(u32 status, const rapidjson::Value& reply) {
  const std::string message = text_of(member(reply, "error"), "message");
  const ExitCode code = status == 429 || status >= 500 ? kExitIo : kExitRefused;
  throw Failure{
      code, escaped(message.empty() ? "the server answered with status " + std::to_string(status)
                                    : message)};
}

[[noreturn]] void fail_with(u32 status, const std::string& body) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(body.data(), body.size());
  if (document.HasParseError()) document.SetNull();
  fail_with(status, document);
}

bool is_error(u32 status) { return status < 200 || status > 299; }

}  // namespace

Option DaemonClient::add_to(const Command& command) {
  socket_ = command.add_option("--socket", address_, "tarnd: unix:///PATH or tcp://HOST:PORT")
                .capture_default_str();
  command.add_option("--key-file", key_file_, "a file with the key that tarnd asks for over TCP");
  return socket_;
}

HttpRequest DaemonClient::request_of(const std::string& method, const std::string& target,
                                     const std::string& body) const {
  HttpRequest request{.method = method, .target = target, .body = body};
  if (key_file_.empty()) return request;
  constexpr u64 kKeyFileBytesMax = 4096;
  const std::string text = read_file(key_file_, kKeyFileBytesMax);
  request.key = text.substr(0, text.find_first_of("\r\n"));
  for (const char c : request.key) {
    if (c > ' ' && c < 127) continue;
    throw Failure{kExitRefused, key_file_ +
                                    ": its first line is no key: a key has printable "
                                    "characters without blanks"};
  }
  return request;
}

std::string DaemonClient::text(const std::string& method, const std::string& target,
                               const std::string& body) const {
  Connection connection(parse_address(address_), request_of(method, target, body));
  const u32 status = connection.response().status();
  std::string reply = connection.read_all();
  if (is_error(status)) fail_with(status, reply);
  return reply;
}

rapidjson::Document DaemonClient::json(const std::string& method, const std::string& target,
                                       const std::string& body) const {
  return parsed_reply(text(method, target, body));
}

std::string DaemonClient::stream(
    const std::string& target, const std::string& body,
    const std::function<void(const rapidjson::Document&)>& on_event) const {
  Connection connection(parse_address(address_), request_of("POST", target, body));
  const u32 status = connection.response().status();
  if (is_error(status)) fail_with(status, connection.read_all());
  if (!connection.response().header("content-type").starts_with("text/event-stream")) {
    return connection.read_all();
  }
  EventReader events;
  bool is_done = false;
  for (std::string piece; !(piece = connection.read()).empty();) {
    events.feed(piece);
    while (const auto data = events.next()) {
      is_done = *data == "[DONE]";
      if (is_done) continue;
      const rapidjson::Document event = parsed_reply(*data);
      const rapidjson::Value& error = member(event, "error");
      if (!error.IsNull()) {
        const rapidjson::Value& code = member(error, "code");
        fail_with(code.IsUint() ? code.GetUint() : 500, event);
      }
      on_event(event);
    }
  }
  if (!is_done) throw Failure{kExitIo, "the answer ended before its end: tarnd's log says why"};
  return "";
}

void print_reply(const std::string& reply) {
  print_json_text(reply);
  if (!reply.ends_with('\n')) std::fputc('\n', stdout);
}

// A reply is flat but for a few levels; the iterative parser needs no stack for what is not.
rapidjson::Document parsed_reply(const std::string& text) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  if (document.HasParseError()) {
    throw Failure{kExitIo, "the server's answer is no JSON: is tarnd behind this address?"};
  }
  return document;
}

const rapidjson::Value& member(const rapidjson::Value& object, const char* name) {
  static const rapidjson::Value kNull;
  if (!object.IsObject()) return kNull;
  const auto found = object.FindMember(name);
  return found == object.MemberEnd() ? kNull : found->value;
}

std::string text_of(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value& value = member(object, name);
  return value.IsString() ? std::string(value.GetString(), value.GetStringLength()) : "";
}

u64 count_of(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value& value = member(object, name);
  return value.IsUint64() ? value.GetUint64() : 0;
}

f64 number_of(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value& value = member(object, name);
  return value.IsNumber() ? value.GetDouble() : 0;
}

bool is_true(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value& value = member(object, name);
  return value.IsBool() && value.GetBool();
}

std::string url_escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_plain) {
      out += c;
    } else {
      const auto byte = static_cast<u8>(c);
      (out += '%') += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace tarn::tools
