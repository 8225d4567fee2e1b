// tarn explain: what the load controller decided of the last prompt.
#include <cstdio>
#include <memory>
#include <string>

#include "tools/client/daemon_client.h"
#include "tools/support/exit_code.h"
#include "tools/support/explanation.h"
#include "tools/support/input.h"
#include "tools/support/json.h"
#include "tools/tarn/commands.h"

namespace tarn::tools {
namespace {

struct ExplainCommand {
  DaemonClient daemon;
  std::string file;
  bool json = false;
};

tarn_explanation explanation_of(const rapidjson::Value& control) {
  const rapidjson::Value &kv = member(control, "kv"), &chunks = member(control, "chunks");
  const auto tokens = [](const rapidjson::Value& object, const char* name) {
    return static_cast<u32>(count_of(object, name));
  };
  tarn_explanation e = TARN_INIT(tarn_explanation);
  e.kv_loaded = is_true(kv, "loaded") ? 1 : 0;
  e.tokens = tokens(kv, "tokens");
  e.tokens_in_memory = tokens(kv, "in_memory");
  e.tokens_on_disk = tokens(kv, "on_disk");
  e.load_s = number_of(kv, "load_s");
  e.compute_s = number_of(kv, "compute_s");
  e.recompute = static_cast<f32>(number_of(chunks, "recompute"));
  e.recompute_least = static_cast<f32>(number_of(chunks, "recompute_least"));
  e.chunk_tokens = tokens(chunks, "tokens");
  e.chunk_tokens_on_disk = tokens(chunks, "on_disk");
  e.chunk_load_s = number_of(chunks, "load_s");
  e.chunk_prefill_s = number_of(chunks, "prefill_s");
  e.chunk_blend_s = number_of(chunks, "blend_s");
  e.prefill_factor = number_of(control, "prefill_factor");
  e.disk_factor = number_of(control, "disk_factor");
  e.adaptive = is_true(control, "adaptive") ? 1 : 0;
  return e;
}

void explain(const ExplainCommand& command) {
  const bool has_file = !command.file.empty();
  const rapidjson::Document reply =
      has_file ? parsed_reply(read_file(command.file)) : command.daemon.json("GET", "/props");
  const rapidjson::Value& of_tarnd = member(member(reply, "tarn"), "control");
  const rapidjson::Value& control = of_tarnd.IsObject() ? of_tarnd : member(reply, "control");
  if (!control.IsObject()) {
    throw Failure{kExitRefused, has_file ? command.file +
                                               " has no `control`: give what tarn run "
                                               "--json, or tarnd, replied"
                                         : "this server is no tarnd: its /props have no `control`"};
  }
  const tarn_explanation e = explanation_of(control);
  if (!command.json) return (void)std::fputs(explanation_text(e).c_str(), stdout);
  Json json;
  json.begin_object();
  write_explanation(e, json);
  json.end_object();
  print_json(json);
}

}  // namespace

void add_explain(const Command& app) {
  auto command = std::make_shared<ExplainCommand>();
  const Command sub = app.add_subcommand(
      "explain", "say what was decided of the last prompt, and what else would have cost");
  sub.footer(
      "\nExamples:\n"
      "  tarn explain                                    of tarnd's last answer\n"
      "  tarn run ... --json > reply.json; tarn explain reply.json\n"
      "\nKV on the disk is read or computed anew, and chunks are computed anew in part, by the "
      "expected times of both: those of the box's profile (tarn calibrate), corrected by what "
      "steps and reads took since.\n");
  command->daemon.add_to(sub);
  sub.add_option("FILE", command->file,
                 "a reply of tarn run --json, or of tarnd; -: standard input")
      .type_name("FILE");
  sub.add_flag("--json", command->json, "as JSON");
  sub.callback([command] { explain(*command); });
}

}  // namespace tarn::tools
