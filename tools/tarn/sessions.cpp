// tarn sessions: lists a folder's kept sessions, exports one to a file, imports from a file,
// deletes one; all without a model. A view of tarn store for one session at a time.
#include <cstdio>
#include <memory>
#include <string>

#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/store_view.h"

namespace tarn::tools {
namespace {

void list(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  const StoreView view = folder.open() ? view_of(folder) : StoreView{};
  if (command.json) {
    Json json;
    json.begin_object();
    write_sessions(view.rows, json);
    json.end_object();
    return print_json(json);
  }
  if (!view.rows.empty()) return print_sessions(view.rows);
  std::printf("no sessions in %s\n", command.engine.store_dir.c_str());
}

void export_to_file(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  open_for(folder, command, command.name);
  const reuse::ExportDone done = value_of(folder.copy().write(command.name, command.file.c_str()));
  std::fprintf(stderr, "session %s: %llu tokens, %llu with their KV, %s in %s\n",
               escaped(command.name).c_str(), static_cast<unsigned long long>(done.n_tokens),
               static_cast<unsigned long long>(done.n_slots), format_bytes(done.file_bytes).c_str(),
               command.file.c_str());
}

constexpr const char* kExamples =
    "\nExamples:\n"
    "  tarn sessions --store ~/tarn\n"
    "  tarn sessions export book book.session --store ~/tarn\n"
    "  tarn sessions import book.session --store ~/other\n"
    "  tarn sessions import book.session --as novel --store ~/tarn -m model.gguf\n"
    "  tarn sessions delete book --store ~/tarn\n"
    "\nAn exported session is one file with the tokens and their KV; tarn run --session continues "
    "an imported one bit for bit. Several sessions in one file: tarn store pack. Import only from "
    "sources that you trust like the folder itself: checksums find damage, not forgery.\n";

}  // namespace

void add_sessions(const Command& app) {
  auto command = std::make_shared<StoreCommand>();
  const Command sub =
      app.add_subcommand("sessions", "list, export, import and delete a folder's kept sessions");
  sub.footer(kExamples);
  sub.fallthrough();
  sub.require_subcommand(0, 1);
  sub.add_option("--store", command->engine.store_dir, "the folder of tarn run --store")
      .required()
      .check(is_not_empty);
  sub.add_flag("--json", command->json, "the list as one JSON object on standard output");

  sub.add_subcommand("list", "list the sessions (the default)");
  const Command gone = sub.add_subcommand(
      "delete",
      "delete a session, and KV that no other one shares; its bytes stay in the file until they "
      "are written over");
  gone.add_option("NAME", command->name, "the session's").required();
  const Command out =
      sub.add_subcommand("export", "write a session to a file, which appears when it is whole");
  out.add_option("NAME", command->name, "the session's").required();
  out.add_option("FILE", command->file, "the file; an existing one is replaced").required();
  const Command in = sub.add_subcommand(
      "import", "add an exported session; every byte is checked before anything is written");
  in.add_option("FILE", command->file, "the file").required();
  add_import_options(in, *command);
  sub.callback([command, gone, out, in] {
    check_folder(*command, /*must_be_there=*/!in.parsed());
    if (gone.parsed()) return remove_session(*command);
    if (out.parsed()) return export_to_file(*command);
    if (in.parsed()) return import_file(*command);
    list(*command);
  });
}

}  // namespace tarn::tools
