// Logits of llama.cpp's CPU backend with its defaults (f16 KV, its own choice of flash attention),
// the whole prompt as one batch. Built by make_golden.py against an installed libllama.
//
//   llama_logits [f32]   reads lines "MODEL IDS OUT" from standard input; answers "ok" or "failed"
//                        each; f32: K and V in f32
//   IDS                  token ids as text
//   OUT                  raw f32 [positions, vocab], as `tarn eval --logits-out` writes them
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <llama.h>

namespace {

bool write_logits(const std::string& model_path, const std::string& ids_path,
                  const std::string& out_path, bool wide_kv) {
  std::ifstream ids_file(ids_path);
  std::vector<llama_token> ids(std::istream_iterator<llama_token>(ids_file), {});
  llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = false;  // AMX may be compiled in and not be allowed here
  llama_model* model = llama_model_load_from_file(model_path.c_str(), model_params);
  if (model == nullptr) return false;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = std::max<uint32_t>(512, static_cast<uint32_t>(ids.size()));
  if (wide_kv) {
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // it would round them to f16
  }
  params.n_threads = 2;
  params.n_threads_batch = 2;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return false;

  const auto n = static_cast<int>(ids.size());
  llama_batch batch = llama_batch_init(n, 0, 1);
  batch.n_tokens = n;
  for (int i = 0; i < n; ++i) {
    batch.token[i] = ids[static_cast<size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  const bool decoded = llama_decode(context, batch) == 0;
  const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::ofstream out(out_path, std::ios::binary);
  for (int i = 0; decoded && i < n; ++i) {
    out.write(reinterpret_cast<const char*>(llama_get_logits_ith(context, i)),
              static_cast<std::streamsize>(sizeof(float)) * n_vocab);
  }
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  return decoded && out.good();
}

void be_silent(ggml_log_level, const char*, void*) {}

}  // namespace

int main(int argc, char** argv) {
  const bool wide_kv = argc > 1 && std::string(argv[1]) == "f32";
  llama_log_set(be_silent, nullptr);
  ggml_backend_load_all();
  for (std::string model, ids, out; std::cin >> model >> ids >> out;) {
    std::cout << (write_logits(model, ids, out, wide_kv) ? "ok" : "failed") << std::endl;
  }
  std::cerr << llama_print_system_info() << '\n';
  return 0;
}
