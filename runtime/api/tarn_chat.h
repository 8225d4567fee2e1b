/* runtime/api/tarn_chat.h: conversations, for tarn.h, whose rules hold here too.
 *
 *   tarn_session_feed_chat   feeds a whole conversation; what the session has of it already stays
 *   tarn_chat_render         the same conversation as text and ids, without a session
 *
 * A model's file brings a template that writes a conversation as the model was trained to read it:
 * tokenizer.chat_template, and with tools tokenizer.chat_template.tool_use. It is a program in
 * Jinja's language, and may be hostile: its memory, steps and output are bounded.
 * tarn_options.chat_template replaces it: the name of a built-in one (chatml, llama3, ...: `tarn
 * template --help` lists them), or the text of a template, which has a '{'. If that cannot be
 * parsed, tarn_open returns TARN_INVALID_CONFIG. A file whose own template cannot be parsed is
 * opened: the log has a warning, and the calls below return the reason with its line.
 *
 * Messages are a JSON array of objects, with what the template reads of them: "role" (system, user,
 * assistant, tool), "content", "tool_calls", "name". No text in them becomes a control token: only
 * what the template itself writes does. strftime_now gives the date in UTC.
 */
#ifndef TARN_CHAT_H
#define TARN_CHAT_H
#include "runtime/api/tarn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* U+FDD0 and U+FDD1: noncharacters, which no text needs. */
#define TARN_CHUNK_BEGIN "\xEF\xB7\x90"
#define TARN_CHUNK_END "\xEF\xB7\x91"

/* NULL instead of it: no tools, no arguments, a generation prompt. All texts are borrowed for the
 * call. */
typedef struct tarn_chat_options {
  uint32_t struct_size;
  int32_t no_generation_prompt; /* 1: the text ends with the last message. 0: the template begins
                                   the answer's (where it can) */
  const char* tools_json;       /* a JSON array, given to the template as `tools`; NULL: none */
  const char* arguments_json;   /* a JSON object: more variables of the template; NULL: none. None
                                   of them has a name that rendering sets itself: messages, tools,
                                   add_generation_prompt, bos_token, eos_token, ... */
  /* 1: what stands between TARN_CHUNK_BEGIN and TARN_CHUNK_END in a content is a chunk
   * (tarn_chunks.h), of whose tokens this share is computed anew, or TARN_RECOMPUTE_AUTO. Chunks
   * that come later than others are blended for themselves. A rendered text keeps the two, which
   * its ids have not. 0: they are characters like others. */
  int32_t has_chunks;
  float recompute;
} tarn_chat_options;

/* Writes the conversation's text (not terminated) and its ids. text_bytes_out and n_ids_out are the
 * lengths, also if text_max or ids_max is too small: then it returns TARN_INVALID_REQUEST, and
 * writes neither. A max of 0 asks for the length alone. The ids begin with one BOS if the model's
 * file says so, or the template writes one; no EOS is added. TARN_INVALID_REQUEST: the messages are
 * no JSON (the text has the byte), the template refuses them (the text has its words) or writes
 * nothing for them, or they need more than chat.memory_bytes; TARN_UNSUPPORTED: there is no
 * template, it cannot be parsed, or it uses what Tarn does not know. */
TARN_API int32_t tarn_chat_render(tarn_engine* engine, const char* messages_json, uint64_t n_bytes,
                                  const tarn_chat_options* options, char* text_out,
                                  uint64_t text_max, uint64_t* text_bytes_out, uint32_t* ids_out,
                                  uint64_t ids_max, uint64_t* n_ids_out);

/* Makes the session's tokens those of the conversation. The longest common beginning stays, with
 * its KV; what follows it is dropped, and the rest is fed. So each turn gives the whole
 * conversation, and only its new messages are computed; the tokens that stay count as
 * reused_from_memory. Where a template writes earlier messages differently than before, the log
 * says once (info) from which message on. Errors are those of tarn_chat_render and
 * tarn_session_feed; a refused call leaves the session as it was, except for TARN_IO_FAILED, which
 * may leave the common beginning alone. */
TARN_API int32_t tarn_session_feed_chat(tarn_session* session, const char* messages_json,
                                        uint64_t n_bytes, const tarn_chat_options* options);

/* Calls that return at once, as in tarn.h. */
TARN_API int32_t tarn_submit_chat_render(tarn_engine* engine, const char* messages_json,
                                         uint64_t n_bytes, const tarn_chat_options* options,
                                         char* text_out, uint64_t text_max,
                                         uint64_t* text_bytes_out, uint32_t* ids_out,
                                         uint64_t ids_max, uint64_t* n_ids_out, void* request);
TARN_API int32_t tarn_submit_feed_chat(tarn_session* session, const char* messages_json,
                                       uint64_t n_bytes, const tarn_chat_options* options,
                                       void* request);

#ifdef __cplusplus
}
#endif
#endif
