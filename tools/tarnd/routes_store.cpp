// /v1/tarn/ingest and /v1/tarn/store.
#include "runtime/api/tarn_store.h"
#include "tools/support/json.h"
#include "tools/tarnd/routes.h"

namespace tarn::daemon {
namespace {

void reply_ingested(const std::shared_ptr<Exchange>& exchange, const std::string& name,
                    const IngestEnd& end) {
  if (end.status != TARN_OK) return exchange->reply(http_error(end.error, "content"));
  exchange->work = {.n_prompt_tokens = end.n_tokens, .n_cached_tokens = end.n_reused};
  tools::JsonLine json;
  json.begin_object().key("object").text("tarn.ingest").key("name").text(name);
  json.key("tokens").number(end.n_tokens).key("reused").number(end.n_reused);
  json.key("bytes_written").number(end.bytes_written);
  json.key("seconds").real(tools::seconds_of(end.took_ns)).end_object();
  exchange->reply({.body = json.str()});
}

struct Listing {
  std::vector<tarn_stored> rows;
  u64 n = 0;
};

void reply_listed(const std::shared_ptr<Exchange>& exchange, const Listing& listing) {
  tools::JsonLine json;
  json.begin_object().key("object").text("list").key("data").begin_array();
  for (const tarn_stored& row : std::span(listing.rows).first(listing.n)) {
    json.begin_object().key("name").text(row.name).key("tokens").number(row.n_tokens);
    json.key("kept_tokens").number(row.n_kept).key("bytes").number(row.bytes);
    json.key("saved_at").number(row.saved_at_s).end_object();
  }
  json.end_array().end_object();
  exchange->reply({.body = json.str()});
}

// Again with room for all if there are more.
void list(Service& service, const std::shared_ptr<Exchange>& exchange,
          const std::shared_ptr<Listing>& listing) {
  service.port.call(
      [listing, exchange](tarn_engine* engine, void* request) {
        return tarn_submit_store_list(engine, exchange->request.peer.tenant.c_str(),
                                      listing->rows.data(), listing->rows.size(), &listing->n,
                                      request);
      },
      [listing, exchange, &service](const tarn_event& reply) {
        if (reply.status != TARN_OK) {
          return exchange->reply(http_error(error_in(reply)));
        }
        if (listing->n > listing->rows.size()) {
          listing->rows.resize(listing->n, TARN_INIT(tarn_stored));
          return list(service, exchange, listing);
        }
        reply_listed(exchange, *listing);
      });
}

}  // namespace

void answer_ingest(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Body body;
  body.n_vocab = service.model.status.n_vocab;
  if (auto error = read_body(kIngest, exchange->request.body, body)) {
    return exchange->reply(*error);
  }
  if (service.ingester.is_busy()) {
    return exchange->reply({.status = 429,
                            .type = "rate_limit_error",
                            .message = "another document is being read: try again",
                            .retry_after_s = 5});
  }
  exchange->on_gone([&service] { service.ingester.cancel(); });
  service.ingester.start(
      service.port.get(),
      {.tenant = exchange->request.peer.tenant,
       .name = body.name,
       .text = std::move(body.content),
       .ids = std::move(body.tokens),
       .replaces = body.replaces},
      [exchange, name = body.name](const IngestEnd& end) { reply_ingested(exchange, name, end); });
}

void answer_store_list(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto listing = std::make_shared<Listing>();
  constexpr u64 kRows = 64;
  listing->rows.resize(kRows, TARN_INIT(tarn_stored));
  list(service, exchange, listing);
}

void answer_store_remove(Service& service, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kPrefix = "/v1/tarn/store/";
  const auto name = std::make_shared<std::string>(exchange->request.path.substr(kPrefix.size()));
  service.port.call(
      [name, exchange](tarn_engine* engine, void* request) {
        return tarn_submit_store_remove(engine, exchange->request.peer.tenant.c_str(),
                                        name->c_str(), request);
      },
      [name, exchange](const tarn_event& reply) {
        if (reply.status != TARN_OK) {
          return exchange->reply(http_error(error_in(reply)));
        }
        tools::JsonLine json;
        json.begin_object().key("object").text("tarn.store.deleted").key("name").text(*name);
        json.key("deleted").boolean(true).end_object();
        exchange->reply({.body = json.str()});
      });
}

}  // namespace tarn::daemon
