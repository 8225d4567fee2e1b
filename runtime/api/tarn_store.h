/* runtime/api/tarn_store.h: sessions that outlive the engine. The rules of tarn.h hold here too.
 *
 *   tarn_session_keep, _save, _restore   a conversation under a name, over restarts and power cuts
 *   tarn_ingest                          reads a document ahead of questions
 *   tarn_store_*                         lists, verifies, packs and removes what is saved
 */
#ifndef TARN_STORE_H
#define TARN_STORE_H
#include "runtime/api/tarn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* They need store.path, store.quota_bytes and store.sessions = true in the configuration. A name
 * has 1 to 128 bytes, and one open session at a time. Kept sessions are a cache on disk with room
 * for store.kept_tokens beside the open ones. When it is full the least recently used is evicted,
 * and is then TARN_NOT_FOUND or recomputed. */

/* From now on the engine checkpoints the session under this name: every store.checkpoint_ms while
 * it works, and when an answer ends (0: never). A crash costs the work since the last checkpoint,
 * and the unfinished page (kv.page_tokens). TARN_INVALID_REQUEST: the configuration keeps no
 * sessions, the name is invalid, or another open session has it. */
TARN_API int32_t tarn_session_keep(tarn_session* session, const char* name);
/* Like tarn_session_keep, and when it returns the whole session is on disk, where it outlives a
 * power cut. Allowed while the session computes or generates, which continues afterwards. Bytes
 * that are on disk already are not written again. Errors as for keep, and TARN_IO_FAILED: the disk
 * refused it, or is off; TARN_WOULD_BLOCK: open sessions fill the store, or the day's writes are
 * used up (store.daily_write_bytes). Then the last checkpoint stays. */
TARN_API int32_t tarn_session_save(tarn_session* session, const char* name);

typedef struct tarn_restored {
  uint32_t struct_size;
  int32_t cut_off;     /* 1: the session was computing or generating at its last checkpoint, or its
                          last input had no answer yet (except after a save). It stays 1 until
                          the restored session is fed or generates */
  uint64_t n_tokens;   /* as in tarn_session_info */
  uint64_t n_computed; /* tokens with KV; the rest is being recomputed */
  uint64_t turn_begin; /* begin of the last input. With cut_off: truncate to turn_begin plus the
                          number of ids fed, and generate with the same options */
  uint64_t took_ns;    /* duration of this call */
} tarn_restored;
/* Creates a session that continues, bit for bit, from the last checkpoint of this name, and is kept
 * under it. (If the select.* keys changed, or KV was lost, the approximate KV is recomputed
 * exactly, and the index is rebuilt. If kv.type, the device, Tarn's arithmetic or a setting of the
 * same model differ, all KV is computed anew: n_computed is 0, and the log names both values.)
 * TARN_NOT_FOUND: there is none; TARN_INVALID_REQUEST: it belongs to another model, which the text
 * names, or it is open, or longer than the context; TARN_WOULD_BLOCK: engine.sessions_max are open,
 * or other sessions hold the KV now; TARN_IO_FAILED: it is damaged. restored_out may be NULL. */
TARN_API int32_t tarn_session_restore(tarn_engine* engine, const tarn_session_options* options,
                                      const char* name, tarn_session** session_out,
                                      tarn_restored* restored_out);

typedef struct tarn_ingest_options {
  uint32_t struct_size;
  const char* tenant; /* as in tarn_session_options */
  /* Called about every 100 ms, on the caller's thread. Non-zero cancels: TARN_CANCELLED, and what
   * was read stays. NULL: none. */
  int32_t (*progress)(void* context, const tarn_session_info* info);
  void* progress_context;
  int32_t replaces; /* 1: a saved session of this name with another text gives way to this one */
} tarn_ingest_options;

typedef struct tarn_ingested {
  uint32_t struct_size;
  uint64_t n_reused;      /* of the ids: their KV was there */
  uint64_t bytes_written; /* to the store meanwhile, by all sessions */
} tarn_ingested;
/* Reads a document ahead of questions: creates a session of these ids, computes it, saves it under
 * the name and destroys it, with the errors of these calls. Sessions of the tenant that begin with
 * the same text reuse its KV (reuse.prefix). Repeated after a crash, it computes what is missing.
 * TARN_INVALID_REQUEST also if a saved session of this name has another text, unless `replaces` is
 * set: then the old text stays until the new one's first checkpoint. options and ingested_out may
 * be NULL. */
TARN_API int32_t tarn_ingest(tarn_engine* engine, const tarn_ingest_options* options,
                             const char* name, const uint32_t* ids, uint64_t n_ids,
                             tarn_ingested* ingested_out);

/* ---- The store ------------------------------------------------------------------------------ */

/* These calls stop all sessions of the engine until they end. A name that is not there is
 * TARN_NOT_FOUND; a failed read or write is TARN_IO_FAILED. A tenant is named as in
 * tarn_session_options; NULL is the default one. */

/* In place of a tenant, where a call says so: all of them. No session can have this tenant. */
#define TARN_ALL_TENANTS "*"

typedef struct tarn_stored {
  uint32_t struct_size;
  char name[132];
  uint64_t n_tokens;
  uint64_t n_kept;     /* first tokens whose KV is there; a restore computes the rest. 0 also for
                          a session that was saved with another kv.type, device or arithmetic */
  uint64_t bytes;      /* on disk; KV that sessions share counts for each of them */
  uint64_t saved_at_s; /* seconds since 1970; 0: unknown */
  char tenant[132];    /* "": the default one */
} tarn_stored;
/* Writes the saved sessions of a tenant, or of TARN_ALL_TENANTS, in no order, at most rows_max.
 * rows_out[0].struct_size is the size of each row. n_out is their number, also if it is larger
 * than rows_max. */
TARN_API int32_t tarn_store_list(tarn_engine* engine, const char* tenant, tarn_stored* rows_out,
                                 uint64_t rows_max, uint64_t* n_out);
/* Deletes a saved session of the tenant, with the KV that no other one shares. Its bytes stay in
 * the store's file until they are overwritten. TARN_INVALID_REQUEST: it is open. */
TARN_API int32_t tarn_store_remove(tarn_engine* engine, const char* tenant, const char* name);

typedef struct tarn_store_checked {
  uint32_t struct_size;
  uint64_t n_records, n_bytes; /* that were read */
  uint64_t n_damaged, n_removed;
} tarn_store_checked;
/* Verifies every byte of every record. Damaged ones are not used any more; with `removes` they are
 * also erased on disk, unless an open session holds them. TARN_OK also if there are any. */
TARN_API int32_t tarn_store_check(tarn_engine* engine, int32_t removes,
                                  tarn_store_checked* checked_out);

/* Writes saved sessions of a tenant, or all of them (n_names 0), to one file: tokens and KV, as of
 * their last checkpoints. TARN_ALL_TENANTS, without names: everybody's. Name sessions that share a
 * beginning one after another: it is written once. The file gets its name, and replaces a file of
 * that name, when it is whole and on the disk. */
TARN_API int32_t tarn_store_pack(tarn_engine* engine, const char* tenant, const char* const* names,
                                 uint32_t n_names, const char* path);

typedef struct tarn_unpacked {
  uint32_t struct_size;
  uint32_t n_sessions;
  uint32_t n_there;          /* of them, that the store had already: skipped */
  uint64_t n_tokens, n_kept; /* of all sessions of the file, as in tarn_stored */
} tarn_unpacked;
/* Takes the sessions of a pack into the store, as a tenant's, or with TARN_ALL_TENANTS as those of
 * the tenants that the file names; restore them like any other. `name` is for a file with one
 * session; NULL: the names in the file. Every byte is checked first.
 * TARN_INVALID_REQUEST: another model, KV type or arithmetic, which the text names, or another
 * session has the name; TARN_WOULD_BLOCK: no room; TARN_IO_FAILED: damaged. What came before a
 * failed write stays, and a repeat goes on. Checksums find damage, not forgery: unpack only from
 * sources that you trust like the store itself. unpacked_out may be NULL. */
TARN_API int32_t tarn_store_unpack(tarn_engine* engine, const char* tenant, const char* path,
                                   const char* name, tarn_unpacked* unpacked_out);

/* ---- Calls that return at once, as in tarn.h ------------------------------------------------ */

/* tarn_ingest has no such form: submit create, feed, keep, wait, save and destroy, each when the
 * one before it was answered. */
TARN_API int32_t tarn_submit_keep(tarn_session* session, const char* name, void* request);
TARN_API int32_t tarn_submit_save(tarn_session* session, const char* name, void* request);
TARN_API int32_t tarn_submit_restore(tarn_engine* engine, const tarn_session_options* options,
                                     const char* name, tarn_session** session_out,
                                     tarn_restored* restored_out, void* request);
TARN_API int32_t tarn_submit_store_list(tarn_engine* engine, const char* tenant,
                                        tarn_stored* rows_out, uint64_t rows_max, uint64_t* n_out,
                                        void* request);
TARN_API int32_t tarn_submit_store_remove(tarn_engine* engine, const char* tenant, const char* name,
                                          void* request);
TARN_API int32_t tarn_submit_store_check(tarn_engine* engine, int32_t removes,
                                         tarn_store_checked* checked_out, void* request);
TARN_API int32_t tarn_submit_store_pack(tarn_engine* engine, const char* tenant,
                                        const char* const* names, uint32_t n_names,
                                        const char* path, void* request);
TARN_API int32_t tarn_submit_store_unpack(tarn_engine* engine, const char* tenant, const char* path,
                                          const char* name, tarn_unpacked* unpacked_out,
                                          void* request);

#ifdef __cplusplus
}
#endif
#endif
