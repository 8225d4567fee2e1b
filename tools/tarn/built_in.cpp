#include "tools/tarn/built_in.h"

#include <algorithm>
#include <string_view>

#include "tools/builtin/files.h"
#include "tools/support/logbook.h"
#include "tools/support/model_file.h"
#include "tools/synth/recall.h"

namespace tarn::tools {
namespace {

constexpr u64 kRecallSeed = 2026;
constexpr u32 kRecallAnswerWords = 2;
constexpr size_t kRecallQuestions = 3;

// Questions from the beginning, the middle and the end of the document.
Sample recall_sample(u32 n_tokens) {
  const synth::RecallDocument document =
      synth::recall_document(kRecallSeed, n_tokens, kRecallAnswerWords);
  Sample sample{
      .model = "built in: an associative-recall model whose weights are computed, not trained",
      .document = "generated; its first words: " + document.text.substr(0, 50) + " ...",
      .document_ids = document.ids,
      .questions = {}};
  const size_t n = document.questions.size();
  for (size_t i = 0; i < kRecallQuestions; ++i) {
    const synth::RecallQuestion& question =
        document.questions[i * (n - 1) / (kRecallQuestions - 1)];
    sample.questions.push_back({.text = "what follows '" + question.key + "' (token " +
                                        std::to_string(question.key_pos) + ")?",
                                .expected = question.answer,
                                .ids = {question.key_id},
                                .expected_ids = question.answer_ids});
  }
  return sample;
}

// The last line of a prompt.
std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1);
}

std::string without_space(const std::string& text) {
  return text.substr(text.starts_with(' ') ? 1 : 0);
}

Sample logbook_sample(const BuiltInModel& model) {
  const auto lines = parse_logbook(builtin::sample_text(), "the built-in log book");
  ModelFile file(model.path());
  std::vector<std::vector<u32>> prompts;
  u64 n_shared = ~u64{0};
  for (const LogbookLine& line : lines) {
    prompts.push_back(file.encode(line.prompt, {.add_bos = true}));
    const auto& first = prompts.front();
    const auto& last = prompts.back();
    const auto differ = std::mismatch(first.begin(), first.end(), last.begin(), last.end());
    n_shared = std::min(n_shared, static_cast<u64>(differ.first - first.begin()));
  }
  n_shared = std::min<u64>(n_shared, prompts.front().size() - 1);
  const std::string& text = lines.front().prompt;
  Sample sample{.model = "built in: a 4.6 M parameter model, trained to read log books",
                .document = "a log book, seed " + std::to_string(lines.front().seed) +
                            "; it begins: " + text.substr(0, 60) + " ...",
                .document_ids = {prompts.front().begin(),
                                 prompts.front().begin() + static_cast<std::ptrdiff_t>(n_shared)},
                .questions = {}};
  std::ranges::replace(sample.document, '\n', ' ');
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto whole = file.encode(lines[i].prompt + lines[i].answer, {.add_bos = true});
    const auto n_prompt = static_cast<std::ptrdiff_t>(prompts[i].size());
    sample.questions.push_back(
        {.text = last_line(lines[i].prompt),
         .expected = without_space(lines[i].answer),
         .ids = {prompts[i].begin() + static_cast<std::ptrdiff_t>(n_shared), prompts[i].end()},
         .expected_ids = {whole.begin() + n_prompt, whole.end()}});
  }
  return sample;
}

}  // namespace

Sample built_in_sample(BuiltIn which, const BuiltInModel& model, u32 n_tokens) {
  return which == BuiltIn::recall ? recall_sample(n_tokens) : logbook_sample(model);
}

}  // namespace tarn::tools
