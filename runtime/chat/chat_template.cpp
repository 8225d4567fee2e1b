#include "runtime/chat/chat_template.h"

#include <algorithm>
#include <new>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "runtime/chat/call.h"
#include "runtime/chat/json_reader.h"
#include "runtime/chat/limits.h"
#include "runtime/chat/parser.h"
#include "runtime/text/unicode.h"

namespace tarn::chat {
namespace {

// The shortest parts of a template have two bytes each.
u64 n_nodes_max(u64 source_bytes) { return source_bytes / 2 + 64; }
u64 n_names_max(u64 source_bytes) { return std::min<u64>(source_bytes / 2 + 1, kNamesMax); }

bool bind_name(Machine& m, std::string_view name, const Value& value) {
  const u32 idx = m.program.find_name(name);
  return idx == kNoName || m.bind(idx, value);
}

constexpr const char* kOwnName =
    "an argument of a chat template has a name that rendering sets itself: leave it out";
constexpr std::string_view kOwnNames[] = {"messages",  "tools",     "add_generation_prompt",
                                          "bos_token", "eos_token", "unk_token",
                                          "pad_token"};

bool bind_all(Machine& m, const RenderArgs& args, const Value& messages, const Value& tools,
              const Value& arguments) {
  for (const Variable& variable : args.variables) {
    if (!bind_name(m, variable.name, make_text(variable.text))) return false;
  }
  if (!bind_name(m, "messages", messages) || !bind_name(m, "tools", tools) ||
      !bind_name(m, "documents", make_none()) ||
      !bind_name(m, "add_generation_prompt", make_bool(args.add_generation_prompt))) {
    return false;
  }
  for (const Entry& entry : entries_of(arguments)) {
    const std::string_view name = entry.key.text();
    if (is_own_name(name)) return m.refuse(kOwnName, name).no();
    if (!bind_name(m, name, entry.value)) return false;
  }
  return true;
}

bool render_all(Machine& m, const RenderArgs& args) {
  const auto messages = read_json(m, args.messages, "messages", kFromCaller, true);
  if (!messages) return false;
  const auto is_dict = [](const Value& value) { return value.is(Kind::dict); };
  const bool are_messages = messages->is(Kind::list) &&
                            std::all_of(messages->items, messages->items + messages->n, is_dict);
  if (!are_messages || messages->n == 0) {
    return m
        .bad_field("messages",
                   "messages must be a JSON array of objects with role and content, and not empty")
        .no();
  }
  Value tools = make_none();
  if (!args.tools.empty()) {
    const auto read = read_json(m, args.tools, "tools", kFromCaller, false);
    if (!read) return false;
    if (!read->is(Kind::list) && !read->is(Kind::none)) {
      return m.bad_field("tools", "tools must be a JSON array").no();
    }
    tools = *read;
  }
  Value arguments = make_dict({});
  if (!args.arguments.empty()) {
    const auto read = read_json(m, args.arguments, "arguments", kFromCaller, false);
    if (!read) return false;
    if (!read->is(Kind::dict)) {
      return m.bad_field("arguments", "the arguments of a chat template must be a JSON object")
          .no();
    }
    arguments = *read;
  }
  return bind_all(m, args, *messages, tools, arguments) && run(m, m.program.body);
}

}  // namespace

bool is_own_name(std::string_view name) {
  return std::ranges::find(kOwnNames, name) != std::end(kOwnNames) ||
         std::ranges::find(functions(), name, &Named::name) != std::end(functions());
}

u32 Program::find_name(std::string_view wanted) const {
  for (u32 i = 0; i < names.size(); ++i) {
    if (name(i) == wanted) return i;
  }
  return kNoName;
}

u64 ChatTemplate::memory_bytes(u64 source_bytes) {
  source_bytes = std::min(source_bytes, kSourceBytesMax);
  return sizeof(Program) + source_bytes + n_nodes_max(source_bytes) * sizeof(Node) +
         n_names_max(source_bytes) * sizeof(NameText) + 4 * alignof(std::max_align_t);
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::span<std::byte> region) {
  if (source.size() > kSourceBytesMax) {
    return fail({.status = Status::unsupported,
                 .hint = "the chat template is too large: pass another with --chat-template "
                         "(chat_template)",
                 .figures = {{{"bytes", source.size()}, {"max", kSourceBytesMax}}}});
  }
  if (const u64 at = source.find('\0'); at != std::string_view::npos) {
    return fail({.status = Status::invalid_model,
                 .hint = "the chat template has a zero byte: pass another with --chat-template "
                         "(chat_template)",
                 .figures = {{{"byte", at}}}});
  }
  if (!text::is_utf8(source)) {
    return fail({.status = Status::invalid_model,
                 .hint = "the chat template is no UTF-8: pass another with --chat-template "
                         "(chat_template)"});
  }
  Bump memory(region);
  const auto program = memory.alloc_bytes(sizeof(Program), alignof(Program));
  const auto nodes = memory.alloc<Node>(n_nodes_max(source.size()));
  const auto names = memory.alloc<NameText>(n_names_max(source.size()));
  const auto text = memory.alloc<char>(source.size());
  TARN_ASSERT(program && nodes && names && text);
  std::copy(source.begin(), source.end(), text->begin());
  Parser parser({.source = *text, .nodes = *nodes, .names = *names});
  TARN_TRY(const Program parsed, parser.parse());
  ChatTemplate made;
  auto* kept = new (program->data()) Program(parsed);
  kept->loop_name = kept->find_name("loop");
  made.program_ = kept;
  return made;
}

Result<Rendered> ChatTemplate::render(const RenderArgs& args, std::span<std::byte> memory) const {
  Machine m(*program_, memory, args.now);
  const bool is_done = !m.has_failed() && render_all(m, args);
  if (!is_done || m.has_failed()) return fail(m.error());
  return Rendered{.text = m.output(), .origins = m.origins()};
}

}  // namespace tarn::chat
