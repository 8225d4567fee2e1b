// Shared by the commands that talk to tarnd: its address and key on the command line, JSON
// replies, streams of events, and errors in the server's own words.
#pragma once

#include <rapidjson/document.h>

#include <functional>
#include <string>

#include "tools/client/connection.h"
#include "tools/support/command_line.h"

namespace tarn::tools {

class DaemonClient {
 public:
  // Adds --socket and --key-file to a command.
  Option add_to(const Command& command);
  // Whether --socket was given.
  bool is_named() const { return socket_.count() > 0; }

  // All throw Failure: an answer that is an error has kExitIo where another try may help (429 and
  // 5xx), else kExitRefused.
  std::string text(const std::string& method, const std::string& target,
                   const std::string& body = "") const;
  rapidjson::Document json(const std::string& method, const std::string& target,
                           const std::string& body = "") const;
  // Calls `on_event` with each event of the answer but the last, [DONE]. Returns the whole answer
  // if the server does not stream it, else "".
  std::string stream(const std::string& target, const std::string& body,
                     const std::function<void(const rapidjson::Document&)>& on_event) const;

 private:
  HttpRequest request_of(const std::string& method, const std::string& target,
                         const std::string& body) const;

  std::string address_ = kDefaultAddress, key_file_;
  Option socket_;
};

// Prints a reply as it came, and ends its line.
void print_reply(const std::string& reply);
// A reply as JSON. Throws Failure.
rapidjson::Document parsed_reply(const std::string& text);
// Members of a reply; the value is empty, 0 or false where it is not there, or another type.
const rapidjson::Value& member(const rapidjson::Value& object, const char* name);
std::string text_of(const rapidjson::Value& object, const char* name);
u64 count_of(const rapidjson::Value& object, const char* name);
f64 number_of(const rapidjson::Value& object, const char* name);
bool is_true(const rapidjson::Value& object, const char* name);

// A part of a URL's query: everything but letters and digits is escaped.
std::string url_escaped(std::string_view text);

}  // namespace tarn::tools
