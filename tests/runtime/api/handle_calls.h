// Every function of the headers that takes an engine or a session, called with arguments
// that it would accept, and whether it answered as a refused call must: TARN_INVALID_REQUEST, a
// sentence, and
// out-parameters of zeros. No doctest here: a forked child runs this too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "runtime/api/tarn_explain.h"
#include "runtime/api/tarn_store.h"

namespace tarn::test {

struct Handles {
  tarn_engine* engine = nullptr;
  tarn_session* session = nullptr;
  std::string path;  // a file that no call may make
  const char* why;   // what a refusal's sentence names
};

struct HandleCall {
  const char* name;
  // Whether it was refused, and left nothing but zeros behind.
  bool (*is_refused)(const Handles& on);
};

inline bool is_refusal(const Handles& on, int32_t status) {
  return status == TARN_INVALID_REQUEST && std::strstr(tarn_error_text(), on.why) != nullptr;
}

// All bytes behind struct_size are zeros.
template <class T>
bool is_zeroed(const T& value) {
  const char* bytes = reinterpret_cast<const char*>(&value);
  return value.struct_size == sizeof value &&
         std::all_of(bytes + sizeof value.struct_size, bytes + sizeof value,
                     [](char byte) { return byte == 0; });
}

template <class T>
T filled() {
  T value;
  std::memset(static_cast<void*>(&value), 0x5a, sizeof value);
  value.struct_size = sizeof value;
  return value;
}

inline constexpr uint32_t kAnyId = 1;
inline constexpr char kAnyText[] = "bakeri";
inline constexpr char kAnyMessages[] = R"([{"role":"user","content":"bakeri"}])";
inline constexpr uint64_t kUnwritten = 99;

inline constexpr HandleCall kHandleCalls[] = {
    // First what gives back: the calls behind them find all as it was.
    {"tarn_close", [](const Handles& on) { return tarn_close(on.engine), true; }},
    {"tarn_session_destroy",
     [](const Handles& on) { return tarn_session_destroy(on.session), true; }},
    {"tarn_engine_plan",
     [](const Handles& on) {
       auto plan = filled<tarn_plan>();
       return is_refusal(on, tarn_engine_plan(on.engine, &plan)) && is_zeroed(plan);
     }},
    {"tarn_engine_status_get",
     [](const Handles& on) {
       auto status = filled<tarn_engine_status>();
       return is_refusal(on, tarn_engine_status_get(on.engine, &status)) && is_zeroed(status);
     }},
    {"tarn_tokenize",
     [](const Handles& on) {
       uint32_t ids[64];
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_tokenize(on.engine, kAnyText, 6, 0, ids, 64, &n)) && n == 0;
     }},
    {"tarn_piece",
     [](const Handles& on) {
       char bytes[64];
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_piece(on.engine, kAnyId, bytes, sizeof bytes, &n)) && n == 0;
     }},
    {"tarn_is_end",
     [](const Handles& on) {
       bool is_end = false;
       for (uint32_t id = 0; id < 1024; ++id) is_end |= tarn_is_end(on.engine, id) != 0;
       return !is_end;
     }},
    {"tarn_session_create",
     [](const Handles& on) {
       auto* session = reinterpret_cast<tarn_session*>(kUnwritten);
       return is_refusal(on, tarn_session_create(on.engine, nullptr, &session)) &&
              session == nullptr;
     }},
    {"tarn_session_feed",
     [](const Handles& on) { return is_refusal(on, tarn_session_feed(on.session, &kAnyId, 1)); }},
    {"tarn_session_feed_text",
     [](const Handles& on) {
       return is_refusal(on, tarn_session_feed_text(on.session, kAnyText, 6, 0));
     }},
    {"tarn_chat_render",
     [](const Handles& on) {
       char text[64];
       uint32_t ids[64];
       uint64_t n_bytes = kUnwritten, n_ids = kUnwritten;
       return is_refusal(on,
                         tarn_chat_render(on.engine, kAnyMessages, sizeof kAnyMessages - 1, nullptr,
                                          text, sizeof text, &n_bytes, ids, 64, &n_ids)) &&
              n_bytes == 0 && n_ids == 0;
     }},
    {"tarn_session_feed_chat",
     [](const Handles& on) {
       return is_refusal(
           on, tarn_session_feed_chat(on.session, kAnyMessages, sizeof kAnyMessages - 1, nullptr));
     }},
    {"tarn_session_feed_parts",
     [](const Handles& on) {
       return is_refusal(on, tarn_session_feed_parts(on.session, nullptr, 0, 0.5f, 0));
     }},
    {"tarn_engine_fd",
     [](const Handles& on) {
       return tarn_engine_fd(on.engine) == -1 && is_refusal(on, TARN_INVALID_REQUEST);
     }},
    {"tarn_engine_take",
     [](const Handles& on) {
       auto event = filled<tarn_event>();
       return is_refusal(on, tarn_engine_take(on.engine, &event)) && is_zeroed(event);
     }},
    {"tarn_session_list",
     [](const Handles& on) {
       auto row = filled<tarn_session_row>();
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_session_list(on.engine, &row, 1, &n)) && n == 0;
     }},
    {"tarn_session_generate",
     [](const Handles& on) {
       const tarn_generate_options options = TARN_INIT(tarn_generate_options);
       return is_refusal(on, tarn_session_generate(on.session, &options));
     }},
    {"tarn_session_poll",
     [](const Handles& on) {
       auto event = filled<tarn_event>();
       return is_refusal(on, tarn_session_poll(on.session, -1, &event)) && is_zeroed(event);
     }},
    {"tarn_session_run",
     [](const Handles& on) {
       const tarn_generate_options options = TARN_INIT(tarn_generate_options);
       return is_refusal(on, tarn_session_run(on.session, &options, nullptr, nullptr));
     }},
    {"tarn_session_cancel",
     [](const Handles& on) { return is_refusal(on, tarn_session_cancel(on.session)); }},
    {"tarn_session_explain",
     [](const Handles& on) {
       auto explanation = filled<tarn_explanation>();
       return is_refusal(on, tarn_session_explain(on.session, &explanation)) &&
              is_zeroed(explanation);
     }},
    {"tarn_session_info_get",
     [](const Handles& on) {
       auto info = filled<tarn_session_info>();
       return is_refusal(on, tarn_session_info_get(on.session, &info)) && is_zeroed(info);
     }},
    {"tarn_session_tokens",
     [](const Handles& on) {
       uint32_t ids[64];
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_session_tokens(on.session, 0, ids, 64, &n)) && n == 0;
     }},
    {"tarn_session_wait",
     [](const Handles& on) { return is_refusal(on, tarn_session_wait(on.session, -1)); }},
    {"tarn_session_truncate",
     [](const Handles& on) { return is_refusal(on, tarn_session_truncate(on.session, 1)); }},
    {"tarn_session_fork",
     [](const Handles& on) {
       auto* session = reinterpret_cast<tarn_session*>(kUnwritten);
       return is_refusal(on, tarn_session_fork(on.session, &session)) && session == nullptr;
     }},
    {"tarn_session_keep",
     [](const Handles& on) { return is_refusal(on, tarn_session_keep(on.session, "other")); }},
    {"tarn_session_save",
     [](const Handles& on) { return is_refusal(on, tarn_session_save(on.session, "other")); }},
    {"tarn_session_restore",
     [](const Handles& on) {
       auto* session = reinterpret_cast<tarn_session*>(kUnwritten);
       auto restored = filled<tarn_restored>();
       return is_refusal(on,
                         tarn_session_restore(on.engine, nullptr, "kept", &session, &restored)) &&
              session == nullptr && is_zeroed(restored);
     }},
    {"tarn_ingest",
     [](const Handles& on) {
       auto ingested = filled<tarn_ingested>();
       return is_refusal(on, tarn_ingest(on.engine, nullptr, "other", &kAnyId, 1, &ingested)) &&
              is_zeroed(ingested);
     }},
    {"tarn_store_list",
     [](const Handles& on) {
       auto row = filled<tarn_stored>();
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_store_list(on.engine, nullptr, &row, 1, &n)) && n == 0;
     }},
    {"tarn_store_remove",
     [](const Handles& on) {
       return is_refusal(on, tarn_store_remove(on.engine, nullptr, "kept"));
     }},
    {"tarn_store_check",
     [](const Handles& on) {
       auto checked = filled<tarn_store_checked>();
       return is_refusal(on, tarn_store_check(on.engine, 0, &checked)) && is_zeroed(checked);
     }},
    {"tarn_store_pack",
     [](const Handles& on) {
       return is_refusal(on, tarn_store_pack(on.engine, nullptr, nullptr, 0, on.path.c_str()));
     }},
    {"tarn_store_unpack",
     [](const Handles& on) {
       auto unpacked = filled<tarn_unpacked>();
       return is_refusal(
                  on, tarn_store_unpack(on.engine, nullptr, on.path.c_str(), nullptr, &unpacked)) &&
              is_zeroed(unpacked);
     }},
    // The forms that return at once.
    {"tarn_submit_create",
     [](const Handles& on) {
       auto* session = reinterpret_cast<tarn_session*>(kUnwritten);
       return is_refusal(on, tarn_submit_create(on.engine, nullptr, &session, nullptr)) &&
              session == nullptr;
     }},
    {"tarn_submit_destroy",
     [](const Handles& on) { return is_refusal(on, tarn_submit_destroy(on.session, nullptr)); }},
    {"tarn_submit_feed",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_feed(on.session, &kAnyId, 1, nullptr));
     }},
    {"tarn_submit_feed_text",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_feed_text(on.session, kAnyText, 6, 0, nullptr));
     }},
    {"tarn_submit_generate",
     [](const Handles& on) {
       const tarn_generate_options options = TARN_INIT(tarn_generate_options);
       return is_refusal(on, tarn_submit_generate(on.session, &options, nullptr));
     }},
    {"tarn_submit_wait",
     [](const Handles& on) { return is_refusal(on, tarn_submit_wait(on.session, -1, nullptr)); }},
    {"tarn_submit_tokens",
     [](const Handles& on) {
       uint32_t ids[64];
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_submit_tokens(on.session, 0, ids, 64, &n, nullptr)) && n == 0;
     }},
    {"tarn_submit_truncate",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_truncate(on.session, 1, nullptr));
     }},
    {"tarn_submit_fork",
     [](const Handles& on) {
       auto* session = reinterpret_cast<tarn_session*>(kUnwritten);
       return is_refusal(on, tarn_submit_fork(on.session, &session, nullptr)) && session == nullptr;
     }},
    {"tarn_submit_keep",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_keep(on.session, "other", nullptr));
     }},
    {"tarn_submit_save",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_save(on.session, "other", nullptr));
     }},
    {"tarn_submit_restore",
     [](const Handles& on) {
       auto* session = reinterpret_cast<tarn_session*>(kUnwritten);
       auto restored = filled<tarn_restored>();
       return is_refusal(on, tarn_submit_restore(on.engine, nullptr, "kept", &session, &restored,
                                                 nullptr)) &&
              session == nullptr && is_zeroed(restored);
     }},
    {"tarn_submit_feed_chat",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_feed_chat(on.session, kAnyMessages,
                                                   sizeof kAnyMessages - 1, nullptr, nullptr));
     }},
    {"tarn_submit_feed_parts",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_feed_parts(on.session, nullptr, 0, 0.5f, 0, nullptr));
     }},
    {"tarn_submit_tokenize",
     [](const Handles& on) {
       uint32_t ids[64];
       uint64_t n = kUnwritten;
       return is_refusal(on,
                         tarn_submit_tokenize(on.engine, kAnyText, 6, 0, ids, 64, &n, nullptr)) &&
              n == 0;
     }},
    {"tarn_submit_engine_status_get",
     [](const Handles& on) {
       auto status = filled<tarn_engine_status>();
       return is_refusal(on, tarn_submit_engine_status_get(on.engine, &status, nullptr)) &&
              is_zeroed(status);
     }},
    {"tarn_submit_chat_render",
     [](const Handles& on) {
       char text[64];
       uint32_t ids[64];
       uint64_t n_bytes = kUnwritten, n_ids = kUnwritten;
       return is_refusal(on, tarn_submit_chat_render(
                                 on.engine, kAnyMessages, sizeof kAnyMessages - 1, nullptr, text,
                                 sizeof text, &n_bytes, ids, 64, &n_ids, nullptr)) &&
              n_bytes == 0 && n_ids == 0;
     }},
    {"tarn_submit_store_list",
     [](const Handles& on) {
       auto row = filled<tarn_stored>();
       uint64_t n = kUnwritten;
       return is_refusal(on, tarn_submit_store_list(on.engine, nullptr, &row, 1, &n, nullptr)) &&
              n == 0;
     }},
    {"tarn_submit_store_remove",
     [](const Handles& on) {
       return is_refusal(on, tarn_submit_store_remove(on.engine, nullptr, "kept", nullptr));
     }},
    {"tarn_submit_store_check",
     [](const Handles& on) {
       auto checked = filled<tarn_store_checked>();
       return is_refusal(on, tarn_submit_store_check(on.engine, 0, &checked, nullptr)) &&
              is_zeroed(checked);
     }},
    {"tarn_submit_store_pack",
     [](const Handles& on) {
       return is_refusal(
           on, tarn_submit_store_pack(on.engine, nullptr, nullptr, 0, on.path.c_str(), nullptr));
     }},
    {"tarn_submit_store_unpack",
     [](const Handles& on) {
       auto unpacked = filled<tarn_unpacked>();
       return is_refusal(on, tarn_submit_store_unpack(on.engine, nullptr, on.path.c_str(), nullptr,
                                                      &unpacked, nullptr)) &&
              is_zeroed(unpacked);
     }},
};

}  // namespace tarn::test
