// Which questions about documents in chunks are answered right, by the share that is computed anew:
// the engine's own blending, beside the reference of tools/train/blend_table.py, which writes the
// input and reads the output.
//
//   blend_answers MODEL SHARE... < documents
//
// Of each document: the number of its ids and the ids; the number of its chunks and where each
// begins and ends; the number of its questions, and of each the ids and the answer's ids, with
// their numbers in front. All questions begin with the same id. A line comes out for each document
// and share: the share, then 1 or 0 for each question. The share `full` feeds the ids as they are.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tools/support/own_engine.h"
#include "tools/support/stepping.h"

namespace tarn {
namespace {

using engine::SessionIdx;
using tools::value_of;

struct Question {
  std::vector<u32> ids, answer;
};
struct Document {
  std::vector<u32> ids;
  std::vector<reuse::ChunkSpan> chunks;
  std::vector<Question> questions;
};

std::vector<u32> read_ids() {
  u64 n = 0;
  std::cin >> n;
  std::vector<u32> ids(n);
  for (u32& id : ids) std::cin >> id;
  return ids;
}

bool read(Document& document) {
  document = {.ids = read_ids(), .chunks = {}, .questions = {}};
  u64 n = 0;
  std::cin >> n;
  for (; n > 0; --n) {
    reuse::ChunkSpan chunk;
    std::cin >> chunk.begin >> chunk.end;
    document.chunks.push_back(chunk);
  }
  std::cin >> n;
  for (; n > 0 && std::cin; --n) {
    Question question{.ids = read_ids(), .answer = {}};
    question.answer = read_ids();
    document.questions.push_back(std::move(question));
  }
  return static_cast<bool>(std::cin);
}

std::vector<u32> generate(engine::Engine& engine, SessionIdx session, u32 n) {
  value_of(engine.sessions().generate(session, {.max_tokens = n, .ignore_end = true}));
  std::vector<u32> ids;
  engine::Event event{};
  char text[256];
  while (event.type != engine::EventType::done) {
    if (!engine.sessions().take_event(session, &event, text)) {
      tools::step(engine);
    } else if (event.type == engine::EventType::token) {
      ids.push_back(event.token.token);
    }
  }
  return ids;
}

void answer(engine::Engine& engine, const Document& document, const std::string& share) {
  const SessionIdx session = value_of(engine.sessions().create());
  std::vector<u32> ids = document.ids;
  ids.push_back(document.questions.at(0).ids.at(0));
  const f32 recompute = std::strtof(share.c_str(), nullptr);
  value_of(share == "full" ? engine.sessions().feed(session, ids)
                           : engine.sessions().feed(session, ids, {document.chunks, recompute}));
  tools::compute_all(engine, session);
  std::printf("%s", share.c_str());
  for (const Question& question : document.questions) {
    const SessionIdx asked = value_of(engine.sessions().fork(session));
    value_of(engine.sessions().feed(asked, {question.ids.data() + 1, question.ids.size() - 1}));
    const auto said = generate(engine, asked, static_cast<u32>(question.answer.size()));
    std::printf(" %d", said == question.answer ? 1 : 0);
    engine.sessions().destroy(asked);
  }
  std::printf("\n");
  std::fflush(stdout);
  engine.sessions().destroy(session);
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: blend_answers MODEL SHARE... < documents\n");
    return 64;
  }
  Config config;
  config.context_tokens = 16384;
  config.sessions_max = 2;
  config.budget_bytes = 8 * kGiB;
  tools::OwnEngine own(argv[1], config);
  for (Document document; read(document);) {
    for (int i = 2; i < argc; ++i) answer(own.get(), document, argv[i]);
  }
  return 0;
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  try {
    return tarn::run(argc, argv);
  } catch (const tarn::tools::Failure& failure) {
    std::fprintf(stderr, "blend_answers: %s\n", failure.text.c_str());
    return failure.code;
  }
}
