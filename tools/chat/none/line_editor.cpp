// For builds without libedit.
#include "tools/chat/line_reader.h"

namespace tarn::tools {

std::unique_ptr<LineReader> edited_lines() { return nullptr; }

}  // namespace tarn::tools
