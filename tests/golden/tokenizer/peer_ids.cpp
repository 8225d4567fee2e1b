// llama.cpp's ids for a file of texts: the oracle of compare_peer.py and make_golden.py. Not part
// of the build; those scripts compile it against a llama.cpp that its user names.
//
//   peer_ids VOCAB.gguf REQUESTS ANSWERS
//
//   REQUESTS  u32 n, then n times: u32 flags (1 add_special, 2 parse_special), u32 n_bytes, bytes
//   ANSWERS   u32 n, then n times: flags, n_bytes, bytes as above, u32 n_ids, ids
//             (n_ids = ~0: llama.cpp threw), then u32 n_tokens and for each token
//             u8 ends a generation, u8 is control, u32 n_bytes, bytes of its piece (special shown)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <llama.h>

namespace {

struct Reader {
  std::string bytes;
  size_t at = 0;
  uint32_t number() {
    uint32_t value = 0;
    bytes.copy(reinterpret_cast<char*>(&value), sizeof value, at);
    at += sizeof value;
    return value;
  }
  std::string text(uint32_t n_bytes) {
    at += n_bytes;
    return bytes.substr(at - n_bytes, n_bytes);
  }
};

void put(std::ofstream& out, uint32_t value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}
void put(std::ofstream& out, const std::string& text) {
  put(out, static_cast<uint32_t>(text.size()));
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void put_ids(std::ofstream& out, const llama_vocab* vocab, const std::string& text,
             uint32_t flags) {
  std::vector<llama_token> ids(4 * text.size() + 8);
  try {
    const int32_t n =
        llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), ids.data(),
                       static_cast<int32_t>(ids.size()), (flags & 1) != 0, (flags & 2) != 0);
    if (n < 0) std::exit(3);
    put(out, static_cast<uint32_t>(n));
    out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(n) * 4);
  } catch (const std::exception&) {
    put(out, ~uint32_t{0});
  }
}

void put_token(std::ofstream& out, const llama_vocab* vocab, llama_token id) {
  out.put(llama_vocab_is_eog(vocab, id) ? 1 : 0);
  out.put(llama_vocab_is_control(vocab, id) ? 1 : 0);
  std::string piece(16384, '\0');
  const int32_t n =
      llama_token_to_piece(vocab, id, piece.data(), static_cast<int32_t>(piece.size()), 0, true);
  piece.resize(n < 0 ? 0 : static_cast<size_t>(n));
  put(out, piece);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: peer_ids VOCAB.gguf REQUESTS ANSWERS\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) {
    std::fprintf(stderr, "peer_ids: llama.cpp refuses %s\n", argv[1]);
    return 1;
  }
  const llama_vocab* vocab = llama_model_get_vocab(model);
  std::ifstream in(argv[2], std::ios::binary);
  Reader requests{{std::istreambuf_iterator<char>(in), {}}};
  std::ofstream out(argv[3], std::ios::binary);
  const uint32_t n_requests = requests.number();
  put(out, n_requests);
  for (uint32_t i = 0; i < n_requests; ++i) {
    const uint32_t flags = requests.number();
    const std::string text = requests.text(requests.number());
    put(out, flags);
    put(out, text);
    put_ids(out, vocab, text, flags);
  }
  const int32_t n_tokens = llama_vocab_n_tokens(vocab);
  put(out, static_cast<uint32_t>(n_tokens));
  for (int32_t id = 0; id < n_tokens; ++id) put_token(out, vocab, id);
  return out.good() ? 0 : 1;
}
