// A refusal or a failure of the engine, and how a client sees it. The reason decides, never the
// text.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "platform/base/types.h"
#include "runtime/api/tarn.h"
#include "tools/tarnd/exchange.h"

namespace tarn::daemon {

struct EngineError {
  int32_t status = TARN_OK;
  int32_t reason = TARN_REASON_NONE;
  std::string key = {};
  std::string text = {};
  std::array<tarn_figure, 4> figures{};

  // The figure of this name; 0 without one.
  u64 figure(std::string_view name) const;
};

// This thread's latest failure.
EngineError latest_error();
// Returns a reply's failure. One without a failure has TARN_OK.
EngineError error_in(const tarn_event& reply);
// The reply to a call that was not submitted, or never will be answered.
tarn_event reply_of(const EngineError& error);

// `text_field`: the field of the request that the engine's text or token ids came from.
HttpError http_error(const EngineError& error, std::string_view text_field = "");

}  // namespace tarn::daemon
