#include "tools/support/wrapped.h"

#include <algorithm>

namespace tarn::tools {
namespace {

// Appends pieces, on a new line if one does not fit.
class Lines {
 public:
  explicit Lines(const WrapHow& how) : how_(how), column_(how.column), begin_(how.column) {}

  void put(std::string_view piece, bool is_word) {
    const size_t space = is_word && column_ > begin_ ? 1 : 0;
    if (column_ > begin_ && column_ + space + piece.size() > how_.width) {
      text_ += '\n' + std::string(how_.indent, ' ');
      column_ = begin_ = how_.indent;
    } else {
      text_.append(space, ' ');
      column_ += space;
    }
    text_ += piece;
    column_ += piece.size();
  }
  std::string take() { return std::move(text_); }

 private:
  WrapHow how_;
  size_t column_, begin_;
  std::string text_;
};

}  // namespace

std::string wrapped(std::string_view line, const WrapHow& how) {
  if (how.column + line.size() <= how.width) return std::string(line);
  Lines lines(how);
  for (size_t begin = line.find_first_not_of(' '); begin < line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    const bool is_long = how.indent + (end - begin) > how.width;
    for (size_t at = begin; at < end;) {
      const size_t comma = is_long ? line.find(',', at) : std::string_view::npos;
      const size_t next = comma < end ? comma + 1 : end;
      lines.put(line.substr(at, next - at), at == begin);
      at = next;
    }
    begin = line.find_first_not_of(' ', end);
  }
  return lines.take();
}

std::string wrapped_lines(std::string_view text, size_t width) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    out += std::string(indent, ' ');
    out += wrapped(line.substr(indent), {.column = indent, .indent = indent, .width = width});
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

std::string wrapped_entry(std::string_view name, std::string_view about, size_t width) {
  std::string out = "  " + wrapped(name, {.column = 2, .indent = 6, .width = width});
  if (about.empty()) return out + '\n';
  out += out.size() < kHelpColumn ? std::string(kHelpColumn - out.size(), ' ')
                                  : '\n' + std::string(kHelpColumn, ' ');
  return out + wrapped(about, {.column = kHelpColumn, .indent = kHelpColumn, .width = width}) +
         '\n';
}

}  // namespace tarn::tools
