// tarn ingest: reads documents ahead of questions. Each becomes a saved session of the store, whose
// KV is found by its tokens.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "tools/builtin/built_in_model.h"
#include "tools/client/daemon_client.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/support/model_file.h"
#include "tools/support/passages.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/context.h"
#include "tools/tarn/generation.h"
#include "tools/tarn/ingest_documents.h"
#include "tools/tarn/kept_session.h"
#include "tools/tarn/store_view.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;

struct IngestCommand {
  EngineOptions engine;
  DaemonClient daemon;
  std::vector<std::string> files;
  std::string as;
  bool parse_special = false, chunks = false, replaces = false, json = false;
  u32 chunk_tokens = kPassageTokens;
};

using Ids = std::vector<u32>;

// Returns the ids of each document that a file is: the whole, or its passages, each behind what a
// prompt begins with.
std::vector<Ids> ids_of(ModelFile& model, const IngestCommand& command, const std::string& text) {
  if (!command.chunks)
    return {model.encode(text, {.add_bos = true, .parse_special = command.parse_special})};
  std::vector<Ids> all;
  for (const Passage& passage : cut_into_passages(model, text, command.chunk_tokens)) {
    Ids& ids = all.emplace_back(model.encode("", {.add_bos = true}));
    ids.insert(ids.end(), passage.ids.begin(), passage.ids.end());
  }
  return all;
}

// A file that cannot be read does not stop the others.
std::vector<Document> documents_of(const IngestCommand& command) {
  ModelFile model(command.engine.model);
  std::vector<Document> documents;
  for (const std::string& path : command.files) {
    std::vector<Ids> all;
    try {
      const std::string text = read_file(path);
      if (text.empty()) throw Failure{kExitRefused, "is empty: is it the right file?"};
      all = ids_of(model, command, text);
    } catch (const Failure& failure) {
      fail_with(add_document(documents, path, command.as), failure.code, failure.text);
    }
    for (u64 i = 0; i < all.size(); ++i) {
      Document& document = add_document(documents, path, command.as, command.chunks ? i + 1 : 0);
      document.n_tokens = all[i].size();
      document.ids = std::move(all[i]);
    }
  }
  return documents;
}

// Room for all documents and for the sessions that are there already. Each takes whole pages, and a
// manifest of less than one.
u64 kept_tokens_for(const Config& config, const std::vector<Document>& documents) {
  u64 n_tokens = 0;
  const auto add = [&](u64 n) { n_tokens += n + 2 * u64{config.page_tokens}; };
  for (const Document& document : documents) add(document.failure ? 0 : document.n_tokens);
  if (has_kept_sessions(config)) {
    SessionFolder folder(config.store.path.data());
    if (folder.open(SessionFolder::Use::reads)) {
      for (const SessionRow& row : view_of(folder).rows) {
        const bool is_one = std::ranges::any_of(documents, [&](const Document& document) {
          return !document.failure && document.name == row.name && row.tenant.empty();
        });
        if (!is_one) add(row.n_tokens);
      }
    }
  }
  return std::min(n_tokens, kKeptTokensMax);
}

// The documents that fit go in, if any does.
Config config_for(const IngestCommand& command, std::vector<Document>& documents) {
  Config config = command.engine.config();
  if (config.store.is_off()) {
    throw Failure{kExitUsage, "documents are kept in a folder: name one with --store DIR"};
  }
  config.store.sessions = true;
  config.sessions_max = 1;
  if (config.context_tokens == 0) {
    u64 n_longest = 1;
    for (const Document& document : documents) {
      n_longest = std::max<u64>(n_longest, document.n_tokens);
    }
    config.context_tokens = context_for(command.engine.model, n_longest, 0);
  }
  for (Document& document : documents) {
    if (document.failure || document.n_tokens <= config.context_tokens) continue;
    fail_with(document, kExitRefused,
              std::to_string(document.n_tokens) + " tokens are more than -c " +
                  std::to_string(config.context_tokens) + ": raise -c");
  }
  if (config.store.kept_tokens == 0) config.store.kept_tokens = kept_tokens_for(config, documents);
  return config;
}

// Progress on standard error.
int32_t show(void* context, const tarn_session_info* info) {
  auto& progress = *static_cast<std::optional<PrefillProgress>*>(context);
  if (!progress) progress.emplace(info->n_computed);
  progress->show(*info);
  return 0;
}

void ingest_one(tarn_engine* engine, const IngestCommand& command, Document& document) {
  std::optional<PrefillProgress> progress;
  tarn_ingest_options options = TARN_INIT(tarn_ingest_options);
  options.progress = show;
  options.progress_context = &progress;
  options.replaces = command.replaces ? 1 : 0;
  tarn_ingested done = TARN_INIT(tarn_ingested);
  SystemClock clock;
  const u64 begin_ns = clock.now_ns();
  try {
    check_api(tarn_ingest(engine, &options, document.name.c_str(), document.ids.data(),
                          document.ids.size(), &done));
  } catch (const Failure& failure) {
    progress.reset();
    return fail_with(document, failure.code, failure.text);
  }
  progress.reset();
  document.seconds = seconds_of(clock.now_ns() - begin_ns);
  document.n_reused = done.n_reused;
  document.bytes_written = done.bytes_written;
  if (!command.json) print(document);
}

// Documents that others have pushed out meanwhile.
void find_evicted(tarn_engine* engine, std::vector<Document>& documents) {
  uint64_t n = 0;
  check_api(tarn_store_list(engine, nullptr, nullptr, 0, &n));
  std::vector<tarn_stored> rows(n + 1, TARN_INIT(tarn_stored));
  check_api(tarn_store_list(engine, nullptr, rows.data(), rows.size(), &n));
  rows.resize(std::min<u64>(n, rows.size()));
  for (Document& document : documents) {
    if (document.failure) continue;
    const auto is_whole = [&](const tarn_stored& row) {
      return row.name == document.name && row.n_kept + 1 >= document.n_tokens;
    };
    if (std::ranges::any_of(rows, is_whole)) continue;
    fail_with(document, kExitRefused,
              "later files took its place in the store: raise store.kept_tokens, and "
              "store.quota_bytes where it is less than that takes");
  }
}

void ingest_by_daemon(const IngestCommand& command) {
  if (!command.engine.store_dir.empty() || command.parse_special || command.chunks) {
    throw Failure{kExitUsage,
                  "with --socket the documents are read by tarnd, into its own store: "
                  "leave out --store, --parse-special and --chunks; a document can be a chunk as "
                  "it is"};
  }
  std::vector<Document> documents;
  for (const std::string& path : command.files) add_document(documents, path, command.as);
  for (Document& document : documents) {
    read_by_daemon(command.daemon, document, command.replaces);
    if (!document.failure && !command.json) print(document);
  }
  report(documents, command.json, std::nullopt);
}

void ingest(IngestCommand& command) {
  if (!command.as.empty() && command.files.size() > 1) {
    throw Failure{kExitUsage, "--as names one document: give one FILE"};
  }
  if (command.chunks && command.parse_special) {
    throw Failure{kExitUsage, "control tokens in chunks stay text: leave out --parse-special"};
  }
  if (command.daemon.is_named()) return ingest_by_daemon(command);
  const auto built_in = built_in_unless_named(command.engine.model, BuiltIn::logbook);
  std::vector<Document> documents = documents_of(command);
  const Config config = config_for(command, documents);
  const auto failed = [](const Document& document) { return document.failure.has_value(); };
  if (!std::ranges::all_of(documents, failed)) {
    // Answers on this machine go first, unless nice(1) was told otherwise. The engine's threads
    // inherit it.
    if (getpriority(PRIO_PROCESS, 0) == 0) setpriority(PRIO_PROCESS, 0, 19);
    warn_beyond_training(command.engine.model, config.context_tokens);
    const EngineHandle engine(command.engine, config);
    for (Document& document : documents) {
      if (!document.failure) ingest_one(engine.get(), command, document);
    }
    if (!std::ranges::all_of(documents, failed)) find_evicted(engine.get(), documents);
  }
  std::error_code absent;
  const u64 size = fs::file_size(fs::path(config.store.path.data()) / kSessionsFile, absent);
  report(documents, command.json, absent ? 0 : size);
}

}  // namespace

void add_ingest(const Command& app) {
  auto command = std::make_shared<IngestCommand>();
  const Command sub = app.add_subcommand("ingest", "read documents ahead of questions");
  sub.footer(
      "\nExamples:\n"
      "  tarn ingest -m model.gguf --store ~/tarn manual.txt faq.txt\n"
      "  tarn run -m model.gguf --store ~/tarn -f manual-and-question.txt\n"
      "  tarn ingest -m model.gguf --store ~/tarn --chunks *.txt\n"
      "  tarn ingest --socket unix:///run/tarn/tarn.sock manual.txt\n"
      "\nA prompt that begins with the text of a document takes its KV from the store. Each file "
      "becomes a saved session of the file's name (tarn store shows them). Text that two files "
      "begin with is computed once. After ^C, a crash or a power cut repeat the command: it goes "
      "on from the last checkpoint, and what is there already is skipped. It runs at low priority, "
      "or at nice's. With --chunks each file is cut into passages, named FILE#1 and so on, that "
      "tarn run --chunk takes in any order, with --chat too. Without, a chat model's prompt finds "
      "no "
      "document, since it begins with the model's template. tarnd on the same --store finds "
      "documents of this command with daemon.shared = true, else those of its own users alone "
      "(--socket). With --socket a running tarnd reads them, as its "
      "requests allow. "
      "If one file fails, the others are read, and the exit code says so.\n");
  command->engine.add_to(sub, "what the longest FILE needs");
  command->daemon.add_to(sub);
  sub.add_option("FILE", command->files,
                 "the documents, byte for byte; -: standard input, with --as NAME")
      .required()
      .check(is_not_empty);
  sub.add_option("--as", command->as, "a name in place of the file's, for one FILE")
      .check(is_not_empty);
  sub.add_flag("--parse-special", command->parse_special,
               "read control tokens written in the documents as such");
  sub.add_flag("--chunks", command->chunks, "keep the documents as chunks (tarn run --chunk)");
  sub.add_option("--chunk-tokens", command->chunk_tokens, kChunkTokensHelp)
      .between(kPassageTokensMin, kPassageTokensMax)
      .capture_default_str();
  sub.add_flag("--replace", command->replaces,
               "a document whose text has changed takes the place of the one with its name");
  sub.add_flag("--json", command->json, "one JSON object on standard output");
  sub.callback([command] { ingest(*command); });
}

}  // namespace tarn::tools
