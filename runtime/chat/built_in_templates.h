// Chat templates by name, for files that carry none. They are ours, written from the formats'
// descriptions; a file's own template says more (tools, dates, a model's name).
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace tarn::chat {

struct BuiltInTemplate {
  std::string_view name{};
  std::string_view source{};
};

std::span<const BuiltInTemplate> built_in_templates();
// The source of the template with this name.
std::optional<std::string_view> built_in_template(std::string_view name);

}  // namespace tarn::chat
