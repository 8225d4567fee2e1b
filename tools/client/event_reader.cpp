#include "tools/client/event_reader.h"

#include <utility>

#include "tools/support/exit_code.h"

namespace tarn::tools {

void EventReader::feed(std::string_view bytes) {
  input_.append(bytes);
  if (input_.size() + data_.size() > kEventBytesMax) {
    throw Failure{kExitIo, "the server sent an event of more than 16 MiB"};
  }
}

std::optional<std::string> EventReader::next() {
  constexpr std::string_view kData = "data:";
  for (size_t end; (end = input_.find('\n')) != std::string::npos;) {
    std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) {  // the event is whole
      if (std::exchange(has_data_, false)) return std::exchange(data_, "");
    } else if (line.starts_with(kData)) {
      if (has_data_) data_ += '\n';
      has_data_ = true;
      data_.append(line, kData.size() + (line[kData.size()] == ' ' ? 1 : 0));
    }
  }
  return std::nullopt;
}

}  // namespace tarn::tools
