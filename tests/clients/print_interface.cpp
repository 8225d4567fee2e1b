// Prints tarnd's tables of endpoints and of request fields as JSON lines, for interface.py.
#include <cstdio>
#include <string>

#include "tools/support/json.h"
#include "tools/tarnd/fields.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

using tools::JsonLine;

struct Named {
  Endpoint endpoint;
  const char* schema;
};
constexpr Named kBodies[] = {
    {kChat, "ChatRequest"},
    {kCompletions, "CompletionRequest"},
    {kTokenize, "TokenizeRequest"},
    {kDetokenize, "DetokenizeRequest"},
    {kApplyTemplate, "ApplyTemplateRequest"},
    {kIngest, "IngestRequest"},
};

const char* kind_name(FieldKind kind) {
  constexpr const char* kNames[] = {"served", "ignored", "refused"};
  return kNames[static_cast<u32>(kind)];
}

void write_default(const Field& field, JsonLine& json) {
  const Body body;
  json.key("default");
  if (field.flag != nullptr) {
    json.boolean(body.*field.flag);
  } else if (field.integer != nullptr) {
    json.integer(body.*field.integer);
  } else if (field.number != nullptr) {
    json.real(body.*field.number);
  } else {
    json.null();
  }
}

void print_field(const char* schema, const Field& field) {
  JsonLine json;
  json.begin_object().key("schema").text(schema).key("field").text(field.name);
  json.key("type").number(static_cast<u64>(field.type)).key("kind").text(kind_name(field.kind));
  if (field.type == FieldType::integer) {
    json.key("least").integer(field.integer_least).key("most").integer(field.integer_most);
  } else {
    json.key("least").real(field.least).key("most").real(field.most);
  }
  json.key("about").text(field.about);
  json.key("required").boolean(field.is_required).key("harmless").text(field.harmless);
  write_default(field, json);
  json.end_object();
  std::printf("%s\n", std::string(json.str()).c_str());
}

void print_route(const Route& route) {
  JsonLine json;
  json.begin_object().key("method").text(route.method).key("path").text(route.path);
  json.key("public").boolean(route.is_public).end_object();
  std::printf("%s\n", std::string(json.str()).c_str());
}

}  // namespace
}  // namespace tarn::daemon

int main() {
  using namespace tarn::daemon;
  for (const Route& route : routes()) print_route(route);
  for (const Named& body : kBodies) {
    for (const Field& field : fields()) {
      if ((field.endpoints & body.endpoint) != 0) print_field(body.schema, field);
    }
  }
}
