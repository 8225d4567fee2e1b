// The seeds of json_body: bodies of each endpoint, behind the byte that chooses it.
#include <fstream>
#include <string>

namespace {

struct Seed {
  char endpoint;
  const char* body;
};
constexpr Seed kSeeds[] = {
    {0,
     R"({"model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "user",
     "content": [{"type": "text", "text": "\u00e9\ud83d\ude00"}]}], "max_tokens": 4, "stream": true,
     "stream_options": {"include_usage": true}, "temperature": 0, "seed": 7, "n": 2, "top_p": 0.5,
     "stop": ["a", "\n"], "logprobs": true, "top_logprobs": 3, "logit_bias": {"12": -100, "3": 1.5},
     "tarn": {"session": "s", "select": "off", "background": true}, "tools": null,
     "response_format": {"type": "text"}, "user": "u", "chat_template_kwargs": {"a": [1, {}]}})"},
    {1,
     R"({"prompt": ["a", "b"], "max_tokens": 1e1, "stop": "x", "logprobs": 2, "echo": false,
     "min_p": 0.1, "top_k": 5, "repeat_penalty": 1.1, "repeat_last_n": -1, "ignore_eos": true})"},
    {1, R"({"prompt": [[1, 2], [3]], "logit_bias": [[1, -1], [2, false]], "presence_penalty": 2})"},
    {1, R"({"prompt": [1, 2, 3], "frequency_penalty": -2, "n_predict": -1})"},
    {2, R"({"content": "text", "add_special": true, "parse_special": false, "with_pieces": true})"},
    {3, R"({"tokens": [0, 1, 4294967295]})"},
    {4, R"({"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": false})"},
    {5, R"({"name": "book", "content": "text"})"},
    {5, R"({"name": "book", "tokens": [1, 2]})"},
    {0, "[[[[[[[["},
    {0, "{\"a\": 1e999, \"a\": \"\\ud800\"}"},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  int n = 0;
  for (const Seed& each : kSeeds) {
    std::ofstream(std::string(argv[1]) + "/body" + std::to_string(n++), std::ios::binary)
        << each.endpoint << each.body;
  }
  return 0;
}
