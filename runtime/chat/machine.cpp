#include "runtime/chat/machine.h"

#include <algorithm>
#include <cstring>

namespace tarn::chat {

Machine::Machine(const Program& of, std::span<std::byte> memory, const std::tm& at)
    : program(of), now(at), heap_(memory) {
  const auto bindings = heap_.alloc<Binding>(kBindingsMax);
  if (!bindings) no_memory();
  const auto newest = heap_.alloc<u32>(program.names.size() + 1);
  if (!newest) no_memory();
  variables.init(bindings.value_or(std::span<Binding>()), newest.value_or(std::span<u32>()));
  // A quarter of the rest is enough for what is printed: the messages once, and the template's own.
  const u64 n = heap_.free_bytes() / 4;
  out_ = heap_.alloc<char>(n).value_or(std::span<char>());
  origins_ = heap_.alloc<u8>(n).value_or(std::span<u8>());
}

Failed Machine::refuse(const char* hint, std::string_view detail, Status status) {
  if (!has_failed()) {
    error_ = {.status = status,
              .reason = Reason::template_failed,
              .hint = hint,
              .detail = Detail(detail),
              .figures = {{{"line", line_}}}};
  }
  return {};
}

Failed Machine::unknown(std::string_view what) {
  return refuse(
      "the chat template uses what Tarn does not know: pass another with "
      "--chat-template (chat_template)",
      what, Status::unsupported);
}

Failed Machine::wrong(std::string_view what) {
  return refuse(
      "the chat template fails with these messages: change them, or pass another "
      "template with --chat-template (chat_template)",
      what);
}

Failed Machine::bad_field(const char* field, const char* hint) {
  if (!has_failed()) {
    error_ = {
        .status = Status::invalid_request, .reason = Reason::bad_field, .key = field, .hint = hint};
  }
  return {};
}

Failed Machine::no_memory() {
  if (!has_failed()) {
    error_ = {
        .status = Status::invalid_request,
        .reason = Reason::no_memory,
        .key = "chat.memory_bytes",
        .hint =
            "the conversation needs more memory than there is for rendering it: shorten it, or "
            "raise chat.memory_bytes",
        .figures = {{{"line", line_}}}};
  }
  return {};
}

Failed Machine::refuse_json(const char* what, u64 at) {
  if (!has_failed()) {
    error_ = {.status = Status::invalid_request,
              .reason = Reason::bad_field,
              .key = what,
              .hint = "no JSON, or no UTF-8, from this byte on",
              .detail = Detail(what),
              .figures = {{{"byte", at}}}};
  }
  return {};
}

std::span<std::byte> Machine::spare() { return std::as_writable_bytes(out_.subspan(n_out_)); }

bool Machine::out_of_work() {
  refuse(
      "the chat template takes too many steps for these messages: shorten them, or pass another "
      "template with --chat-template (chat_template)",
      "");
  return false;
}

bool Machine::too_deep() {
  refuse(
      "the chat template nests or calls itself too deeply: pass another with --chat-template "
      "(chat_template)",
      "");
  return false;
}

bool Machine::put(std::string_view text, u8 origin) {
  if (text.size() > out_.size() - n_out_) return no_memory().no();
  work(kPutWork + text.size());
  std::copy(text.begin(), text.end(), out_.begin() + static_cast<std::ptrdiff_t>(n_out_));
  std::memset(origins_.data() + n_out_, origin, text.size());
  n_out_ += text.size();
  return true;
}

bool Machine::put(const Value& text) {
  const u64 begin = n_out_;
  if (!put(text.text(), text.origin)) return false;
  if (text.origins != nullptr) std::memcpy(origins_.data() + begin, text.origins, text.n);
  return true;
}

MaybeValue Machine::take(u64 begin) {
  const u64 n = n_out_ - begin;
  n_out_ = begin;
  if (n == 0) return make_text("");
  const std::span<char> bytes = alloc<char>(n);
  if (bytes.empty()) return Failed{};
  std::copy_n(out_.begin() + static_cast<std::ptrdiff_t>(begin), n, bytes.begin());
  const std::span<const u8> from = origins_.subspan(begin, n);
  Value value = make_text({bytes.data(), n}, from[0]);
  const auto differs = [&](u8 origin) { return origin != from[0]; };
  if (std::any_of(from.begin(), from.end(), differs)) {
    const std::span<u8> origins = alloc<u8>(n);
    if (origins.empty()) return Failed{};
    std::copy(from.begin(), from.end(), origins.begin());
    value.origins = origins.data();
  }
  return value;
}

bool Machine::bind(u32 name, const Value& value) {
  if (!step()) return false;
  if (variables.bind(name, value)) return true;
  return refuse(
             "the chat template has too many variables at one time: pass another with "
             "--chat-template (chat_template)",
             program.name(name), Status::unsupported)
      .no();
}

}  // namespace tarn::chat
