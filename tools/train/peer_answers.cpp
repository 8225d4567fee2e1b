// Prints greedy answers of llama.cpp's CPU backend. compare_peer.py builds it against a libllama.
//
//   peer_answers MODEL CONTEXT_TOKENS
//
// Standard input: "PROMPT_BYTES ANSWER_BYTES\n", the prompt, the expected answer; and so on.
// Standard output, for each: "BYTES\n" and the text after the prompt, as many tokens as the
// expected answer has, fewer if the end token comes. KV of a common prefix of two prompts is kept.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include <llama.h>

namespace {

using Tokens = std::vector<llama_token>;

Tokens tokenize(const llama_vocab* vocab, const std::string& text, bool add_special) {
  Tokens tokens(text.size() + 8);
  const int n =
      llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens.data(),
                     static_cast<int>(tokens.size()), add_special, /*parse_special=*/false);
  tokens.resize(static_cast<size_t>(std::max(n, 0)));
  return tokens;
}

std::string piece_of(const llama_vocab* vocab, llama_token token) {
  char buffer[256];
  const int n = llama_token_to_piece(vocab, token, buffer, sizeof buffer, 0, /*special=*/true);
  return {buffer, static_cast<size_t>(std::max(n, 0))};
}

class Peer {
 public:
  Peer(const char* model_path, int context_tokens)
      : model_(llama_model_load_from_file(model_path, llama_model_default_params())) {
    if (model_ == nullptr) return;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(context_tokens);
    params.n_threads = 2;
    params.n_threads_batch = 2;
    context_ = llama_init_from_model(model_, params);
    vocab_ = llama_model_get_vocab(model_);
  }

  bool is_ready() const { return context_ != nullptr; }

  bool answer(const std::string& prompt, const std::string& expected, std::string& given) {
    const Tokens wanted = tokenize(vocab_, prompt, /*add_special=*/true);
    // The answer's tokens are those after the prompt's: encoded alone, some vocabularies begin it
    // differently.
    const size_t n_whole = tokenize(vocab_, prompt + expected, /*add_special=*/true).size();
    const size_t n_answer = n_whole - std::min(n_whole, wanted.size());
    const auto shared = std::mismatch(wanted.begin(), wanted.end(), held_.begin(), held_.end());
    // The last token is always read, for its logits.
    const size_t kept =
        std::min(static_cast<size_t>(shared.first - wanted.begin()), wanted.size() - 1);
    llama_memory_seq_rm(llama_get_memory(context_), 0, static_cast<llama_pos>(kept), -1);
    held_.resize(kept);
    if (!read(Tokens(wanted.begin() + static_cast<ptrdiff_t>(kept), wanted.end()))) return false;
    given.clear();
    for (size_t i = 0; i < n_answer; ++i) {
      const float* logits = llama_get_logits_ith(context_, -1);
      const auto best = static_cast<llama_token>(
          std::max_element(logits, logits + llama_vocab_n_tokens(vocab_)) - logits);
      if (llama_vocab_is_eog(vocab_, best)) break;
      given += piece_of(vocab_, best);
      if (i + 1 < n_answer && !read({best})) return false;
    }
    return true;
  }

 private:
  bool read(Tokens tokens) {
    const size_t batch_tokens = llama_n_batch(context_);
    for (size_t i = 0; i < tokens.size(); i += batch_tokens) {
      const size_t n = std::min(batch_tokens, tokens.size() - i);
      const llama_batch batch = llama_batch_get_one(tokens.data() + i, static_cast<int>(n));
      if (llama_decode(context_, batch) != 0) return false;
    }
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    return true;
  }

  llama_model* model_;
  llama_context* context_ = nullptr;
  const llama_vocab* vocab_ = nullptr;
  Tokens held_;  // the tokens of the context's KV
};

std::string read_bytes(size_t n) {
  std::string bytes(n, '\0');
  std::cin.read(bytes.data(), static_cast<std::streamsize>(n));
  return bytes;
}

void be_silent(ggml_log_level, const char*, void*) {}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  llama_log_set(be_silent, nullptr);
  ggml_backend_load_all();
  Peer peer(argv[1], std::stoi(argv[2]));
  if (!peer.is_ready()) return 1;
  for (size_t prompt_bytes = 0, answer_bytes = 0; std::cin >> prompt_bytes >> answer_bytes;) {
    std::cin.get();
    const std::string prompt = read_bytes(prompt_bytes);
    const std::string expected = read_bytes(answer_bytes);
    std::string given;
    if (!peer.answer(prompt, expected, given)) return 1;
    std::cout << given.size() << '\n' << given << std::flush;
  }
  return 0;
}
