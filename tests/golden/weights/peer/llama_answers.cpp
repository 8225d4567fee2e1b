// Answers and probabilities of llama.cpp's CPU backend, with KV in f32, for make_golden.py.
//
//   llama_answers MODEL PROMPTS TEXT N_ANSWER
//
//   PROMPTS   a prompt a line, \n for a new line; control tokens are read as such
//   TEXT      a file, whose perplexity is measured
//
// Prints, a line each:
//   prompt P ID...                 the prompt's ids
//   answer P ID:MARGIN...          greedy ids, and how far the second best logit lies below
//   best P I ID:LOGPROB...         the five best before the answer's token I
//   perplexity N_IDS VALUE
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <llama.h>

namespace {

constexpr int kBest = 5, kBestEvery = 6;

std::vector<llama_token> ids_of(const llama_vocab* vocab, const std::string& text) {
  std::vector<llama_token> ids(text.size() + 8);
  const int n = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), ids.data(),
                               static_cast<int>(ids.size()), false, true);
  ids.resize(static_cast<size_t>(n));
  return ids;
}

double log_sum_of(const float* logits, int n) {
  const double most = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(logits[i] - most);
  return most + std::log(sum);
}

std::vector<int> best_of(const float* logits, int n) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + kBest, order.end(),
                    [&](int a, int b) { return logits[a] > logits[b]; });
  order.resize(kBest);
  return order;
}

class Peer {
 public:
  explicit Peer(const char* path) {
    llama_model_params params = llama_model_default_params();
    params.use_extra_bufts = false;  // AMX may be compiled in and not be allowed here
    model_ = llama_model_load_from_file(path, params);
    if (model_ == nullptr) std::exit(1);
    vocab_ = llama_model_get_vocab(model_);
    n_vocab_ = llama_vocab_n_tokens(vocab_);
  }

  const llama_vocab* vocab() const { return vocab_; }

  // Forgets what was read before.
  void start() {
    if (context_ != nullptr) llama_free(context_);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 2048;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // it would round them to f16
    context_ = llama_init_from_model(model_, params);
    n_read_ = 0;
  }

  // The logits of the i-th id are then row(i).
  void read(const std::vector<llama_token>& ids) {
    const auto n = static_cast<int>(ids.size());
    llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; ++i) {
      batch.token[i] = ids[static_cast<size_t>(i)];
      batch.pos[i] = n_read_++;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context_, batch) != 0) std::exit(1);
    llama_batch_free(batch);
  }

  const float* row(int i) const { return llama_get_logits_ith(context_, i); }
  int n_vocab() const { return n_vocab_; }

 private:
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  const llama_vocab* vocab_ = nullptr;
  int n_vocab_ = 0, n_read_ = 0;
};

void answer(Peer& peer, int p, const std::string& text, int n_answer) {
  const std::vector<llama_token> ids = ids_of(peer.vocab(), text);
  std::printf("prompt %d", p);
  for (const llama_token id : ids) std::printf(" %d", id);
  std::string answers, best_lines;
  char piece[64];
  peer.start();
  peer.read(ids);
  for (int i = 0; i < n_answer; ++i) {
    const float* row = peer.row(-1);
    const std::vector<int> best = best_of(row, peer.n_vocab());
    std::snprintf(piece, sizeof piece, " %d:%.3f", best[0], row[best[0]] - row[best[1]]);
    answers += piece;
    if (i % kBestEvery == 0) {
      best_lines += "best " + std::to_string(p) + " " + std::to_string(i);
      const double log_sum = log_sum_of(row, peer.n_vocab());
      for (const int id : best) {
        std::snprintf(piece, sizeof piece, " %d:%.4f", id, row[id] - log_sum);
        best_lines += piece;
      }
      best_lines += "\n";
    }
    if (llama_vocab_is_eog(peer.vocab(), best[0])) break;
    peer.read({best[0]});
  }
  std::printf("\nanswer %d%s\n%s", p, answers.c_str(), best_lines.c_str());
}

void perplexity(Peer& peer, const std::string& text) {
  const std::vector<llama_token> ids = ids_of(peer.vocab(), text);
  peer.start();
  peer.read(ids);
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const float* row = peer.row(static_cast<int>(i));
    sum += log_sum_of(row, peer.n_vocab()) - row[ids[i + 1]];
  }
  std::printf("perplexity %zu %.5f\n", ids.size(),
              std::exp(sum / static_cast<double>(ids.size() - 1)));
}

std::string unescaped(std::string line) {
  for (size_t at = 0; (at = line.find("\\n", at)) != std::string::npos; ++at) {
    line.replace(at, 2, "\n");
  }
  return line;
}

void be_silent(ggml_log_level, const char*, void*) {}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 64;
  llama_log_set(be_silent, nullptr);
  ggml_backend_load_all();
  Peer peer(argv[1]);
  std::ifstream prompts(argv[2]), text_file(argv[3]);
  int p = 0;
  for (std::string line; std::getline(prompts, line); ++p) {
    answer(peer, p, unescaped(line), std::atoi(argv[4]));
  }
  perplexity(peer, {std::istreambuf_iterator<char>(text_file), {}});
  return 0;
}
