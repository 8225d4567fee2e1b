// The border of every function of the C API: converts structs of any version in and out, and
// Results to a status and a sentence. A function that takes a handle first makes a Call, and asks
// it whether the call is allowed; tarn_close waits while such an object exists. The blocking and
// the submitted form of a call are one function that is told the Way.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/api/instance.h"
#include "runtime/api/tarn_store.h"

namespace tarn::api {

// The calling thread's text, of its last failed call.
const char* error_text();
int32_t report(const Error& error);
int32_t report(const Result<void>& result);
// A field of a call that is refused; or a state of its handle, which has no name.
struct Refusal {
  constexpr Refusal() = default;
  constexpr Refusal(const char* why) : hint(why) {}  // NOLINT: implicit by intent
  constexpr Refusal(const char* name, const char* why) : field(name), hint(why) {}
  constexpr explicit operator bool() const { return hint != nullptr; }
  Error error() const;
  const char* field = "";
  const char* hint = nullptr;
};
int32_t refuse(const Refusal& why);
tarn_error latest_error();
void copy_figures(const Error& error, tarn_figure (&to)[4]);
void describe_plan(const plan::Plan& plan, tarn_plan* out);

inline constexpr const char* kBadStruct =
    "an options struct is NULL or has no struct_size: initialise it with TARN_INIT(type)";
inline constexpr const char* kLaterStruct =
    "an options struct sets a field that this libtarn does not know: leave the field zero, or link "
    "a newer libtarn";
inline constexpr uint32_t kStructBytesMax = 4096;  // of any version

// Copies the fields of the caller's version of a struct; newer fields stay zero. Returns why it
// cannot, or nothing.
template <class T>
Refusal copy_in(const T* from, T* to) {
  static_assert(sizeof(T) <= kStructBytesMax);
  if (from == nullptr || from->struct_size < sizeof(from->struct_size) ||
      from->struct_size > kStructBytesMax) {
    return {"struct_size", kBadStruct};
  }
  const auto* bytes = reinterpret_cast<const char*>(from);
  const auto is_set = [](char byte) { return byte != 0; };
  if (from->struct_size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + from->struct_size, is_set)) {
    return {"struct_size", kLaterStruct};
  }
  *to = T{};
  std::memcpy(to, from, std::min<size_t>(from->struct_size, sizeof(T)));
  return {};
}

// The facts that a session is created with, of options that may be NULL; or why not.
struct NewSession {
  engine::SessionArgs args{};
  void* user = nullptr;
};
inline Refusal read_options(const tarn_session_options* options, NewSession* session) {
  tarn_session_options own{};
  const Refusal why_not = options == nullptr ? Refusal() : copy_in(options, &own);
  if (why_not) return why_not;
  if (own.tenant != nullptr) session->args.tenant = own.tenant;
  if (session->args.tenant == TARN_ALL_TENANTS)
    return {"tenant", "tenant: \"*\" means all tenants: choose another name"};
  if (own.priority != TARN_INTERACTIVE && own.priority != TARN_BACKGROUND)
    return {"priority", "priority must be TARN_INTERACTIVE or TARN_BACKGROUND"};
  session->args.priority = static_cast<step::Priority>(own.priority);
  session->user = own.user;
  return {};
}

template <class T>
bool copy_out(const T& from, T* to) {
  if (to == nullptr || to->struct_size < sizeof(to->struct_size)) return false;
  const uint32_t struct_size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(struct_size, sizeof(T)));
  to->struct_size = struct_size;
  return true;
}

// The caller's rows of a list, which may be another version's: the first one says of what size.
template <class T>
class Rows {
 public:
  Rows(T* rows, uint64_t n_max)
      : at_(reinterpret_cast<char*>(rows)),
        row_bytes_(rows != nullptr && n_max > 0 ? rows->struct_size : 0),
        n_max_(n_max) {}
  bool is_valid() const {
    return n_max_ == 0 ||
           (at_ != nullptr && row_bytes_ >= sizeof(uint32_t) && row_bytes_ <= kStructBytesMax);
  }
  void add(T row) {
    if (n_++ >= n_max_) return;
    row.struct_size = row_bytes_;
    std::memcpy(at_, &row, std::min<size_t>(row_bytes_, sizeof row));
    at_ += row_bytes_;
  }
  uint64_t n() const { return n_; }  // also beyond n_max

 private:
  char* at_;
  uint32_t row_bytes_;
  uint64_t n_max_, n_ = 0;
};

template <size_t n>
void copy_text(char (&to)[n], const char* from) {
  const size_t length = std::min(std::strlen(from), n - 1);
  std::memcpy(to, from, length);
  std::memset(to + length, 0, n - length);
}

inline bool is_share(float recompute) {  // -1: TARN_RECOMPUTE_AUTO
  return recompute == -1.0f || (recompute >= 0.0f && recompute <= 1.0f);
}
inline constexpr Refusal kBadShare{"recompute",
                                   "recompute must be TARN_RECOMPUTE_AUTO, or a share from 0 to 1"};

inline constexpr uint32_t kTextFlags = TARN_ADD_SPECIAL | TARN_PARSE_SPECIAL | TARN_ADD_BOS;
inline constexpr const char* kBadFlags =
    "flags has a bit that this libtarn does not know: pass TARN_ADD_SPECIAL, TARN_PARSE_SPECIAL, "
    "TARN_ADD_BOS or 0";

// Why a text and its flags are refused, or nothing.
inline Refusal bad_text(const char* text, uint64_t text_bytes, uint32_t flags) {
  if (text == nullptr && text_bytes > 0) return {"text", "text is NULL"};
  return (flags & ~kTextFlags) != 0 ? Refusal("flags", kBadFlags) : Refusal();
}

inline text::EncodeOptions encode_options(uint32_t flags) {
  return {.add_special = (flags & TARN_ADD_SPECIAL) != 0,
          .add_bos = (flags & TARN_ADD_BOS) != 0,
          .parse_special = (flags & TARN_PARSE_SPECIAL) != 0};
}
// A fed text is to be continued: no EOS stands behind it.
inline text::EncodeOptions feed_options(uint32_t flags) {
  return {.add_bos = (flags & (TARN_ADD_SPECIAL | TARN_ADD_BOS)) != 0,
          .parse_special = (flags & TARN_PARSE_SPECIAL) != 0};
}

inline constexpr const char* kForked =
    "the engine belongs to the process that opened it, and this one is a child of fork(2): open "
    "an engine here with tarn_open";

// How a call is answered: its caller waits for it, or takes a reply later.
struct Way {
  bool is_submitted = false;
  void* request = nullptr;  // comes back with the reply
};
inline constexpr Way kWaits{};
inline Way later(void* request) { return {.is_submitted = true, .request = request}; }

// A call. The function that serve() is given is copied into it: it captures values, and pointers of
// the host's that stay valid until the call is answered.
class Call {
 public:
  explicit operator bool() const { return why_not_ == nullptr; }
  const char* why_not() const { return why_not_; }
  engine::Engine& engine() const { return instance_->engine; }
  service::Service& service() const { return instance_->service; }
  Instance& instance() const { return *instance_; }
  int32_t serve(const Way& way, const service::Request& request) const {
    return report(way.is_submitted ? service().submit(request, way.request)
                                   : service().call(request));
  }

 protected:
  Call(Instance* instance, const char* no_handle) : instance_(instance), why_not_(no_handle) {
    if (instance_ == nullptr) return;
    visit_.emplace(instance_->service);
    why_not_ = visit_->is_admitted() ? nullptr : kForked;
  }

  Instance* instance_;

 private:
  const char* why_not_;
  std::optional<service::Service::Visit> visit_{};
};

class EngineCall : public Call {
 public:
  explicit EngineCall(tarn_engine* engine)
      : Call(reinterpret_cast<Instance*>(engine), "engine is NULL: open one with tarn_open") {}
  // fn(engine), on the engine's thread; a value of its Result is dropped. `user` is that of the
  // session that begins, if one does.
  template <class Fn>
  int32_t serve(const Way& way, const Fn& fn, void* user = nullptr) const {
    return Call::serve(way, {.on_engine = [fn](engine::Engine& engine,
                                               const service::Ids&) mutable -> Result<void> {
                               TARN_CHECK(fn(engine));
                               return {};
                             },
                             .user = user});
  }
  // fn(desk), on the text thread.
  template <class Fn>
  int32_t serve_text(const Way& way, const Fn& fn) const {
    return Call::serve(way, {.on_text = fn});
  }
};

// A destroyed session is an error until a new session takes its place.
class SessionCall : public Call {
  using Handle = Instance::SessionHandle;

 public:
  explicit SessionCall(tarn_session* session) : SessionCall(reinterpret_cast<Handle*>(session)) {}
  engine::SessionIdx idx() const { return handle_->idx; }
  // fn(engine, idx), on the engine's thread; a value of its Result is dropped.
  template <class Fn>
  int32_t serve(const Way& way, const Fn& fn, bool is_sure = false) const {
    return Call::serve(
        way, {.on_engine = [fn, idx = idx()](engine::Engine& engine,
                                             const service::Ids&) mutable -> Result<void> {
                TARN_CHECK(fn(engine, idx));
                return {};
              },
              .session = idx(),
              .is_sure = is_sure});
  }
  // read(desk), on the text thread, then fn(engine, idx, ids) with the ids that it left.
  template <class Read, class Fn>
  int32_t serve_text(const Way& way, const Read& read, const Fn& fn) const {
    return Call::serve(
        way,
        {.on_text = read,
         .on_engine = [fn, idx = idx()](engine::Engine& engine,
                                        const service::Ids& ids) { return fn(engine, idx, ids); },
         .session = idx()});
  }
  int32_t serve_wait(const Way& way, int32_t timeout_ms) const {
    return Call::serve(
        way, {.session = idx(), .waits = true, .deadline_ns = service::deadline_ns_of(timeout_ms)});
  }

 private:
  explicit SessionCall(Handle* handle)
      : Call(handle != nullptr ? handle->instance : nullptr,
             "session is NULL: create one with tarn_session_create"),
        handle_(handle) {}

  Handle* handle_;
};

inline constexpr Refusal kNoName{"name", "name is NULL: a kept session needs a name"};

// Serve fn, unless the call is not allowed, or its arguments are not: `why_not` says so.
template <class Fn>
int32_t on_engine(const Way& way, tarn_engine* engine, const Refusal& why_not, const Fn& fn) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  return why_not ? refuse(why_not) : call.serve(way, fn);
}
template <class Fn>
int32_t on_session(const Way& way, tarn_session* session, const Refusal& why_not, const Fn& fn) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  return why_not ? refuse(why_not) : call.serve(way, fn);
}

}  // namespace tarn::api
