#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cwchar>

#include "tools/chat/line_reader.h"

namespace tarn::tools {
namespace {

// libedit's own reading would swallow the first signal.
int read_character(EditLine* editor, wchar_t* character) {
  for (std::mbstate_t state{};;) {
    const Waited waited = wait_for_input();
    if (waited == Waited::caught_signal) return -1;
    if (waited == Waited::resumed) {  // perhaps from ^Z, or the window has another size
      el_set(editor, EL_PREP_TERM, 0);
      el_set(editor, EL_PREP_TERM, 1);
      el_resize(editor);
      std::fputs("\r\x1b[K", stderr);
      el_set(editor, EL_REFRESH);
      continue;
    }
    char byte = 0;
    if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
    const size_t n = std::mbrtowc(character, &byte, 1, &state);
    if (n == 0 || n == 1) return 1;
    if (n == static_cast<size_t>(-1)) state = {};  // no UTF-8: left out
  }
}

class LineEditor : public LineReader {
 public:
  LineEditor() : editor_(el_init("tarn", stdin, stderr, stderr)), history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(
        editor_, EL_PROMPT, +[](EditLine* editor) {
          LineEditor* self = nullptr;
          el_get(editor, EL_CLIENTDATA, &self);
          return self->prompt_.data();
        });
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_GETCFN, read_character);
    el_source(editor_, nullptr);  // ~/.editrc
  }
  ~LineEditor() override {
    history_end(history_);
    el_end(editor_);
  }
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  LineRead next(const char* prompt, std::string& line) override {
    prompt_ = prompt;
    int n = 0;
    // el_gets alone shows the prompt first: a ^D that is typed at once would be lost in between.
    el_set(editor_, EL_PREP_TERM, 1);
    const char* text = el_gets(editor_, &n);
    if (signal_caught() != 0) return LineRead::caught_signal;
    if (text == nullptr || n <= 0) return LineRead::end;
    line.assign(text, static_cast<size_t>(n));
    if (line.ends_with('\n')) line.pop_back();
    return LineRead::line;
  }
  void remember(const std::string& line) override {
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  static constexpr int kHistoryLines = 1000;

  std::string prompt_;
  EditLine* editor_;
  History* history_;
};

}  // namespace

std::unique_ptr<LineReader> edited_lines() {
  // Text is UTF-8 everywhere in Tarn, whatever the user's locale is.
  if (!is_interactive() || !has_escapes()) return nullptr;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) return nullptr;
  return std::make_unique<LineEditor>();
}

}  // namespace tarn::tools
