#include "runtime/text/named_tokens.h"

namespace tarn::text {
namespace {

// A later key overrides an earlier one.
constexpr RoleKey kRoleKeys[] = {
    {"tokenizer.ggml.bos_token_id", Role::bos},
    {"tokenizer.ggml.eos_token_id", Role::eos},
    {"tokenizer.ggml.unknown_token_id", Role::unknown},
    {"tokenizer.ggml.eot_token_id", Role::eot},
    {"tokenizer.ggml.eom_token_id", Role::eom},
    {"tokenizer.ggml.fim_pre_token_id", Role::fim_prefix},
    {"tokenizer.ggml.fim_suf_token_id", Role::fim_suffix},
    {"tokenizer.ggml.fim_mid_token_id", Role::fim_middle},
    {"tokenizer.ggml.fim_pad_token_id", Role::fim_pad},
    {"tokenizer.ggml.fim_rep_token_id", Role::fim_repo},
    {"tokenizer.ggml.fim_sep_token_id", Role::fim_separator},
    {"tokenizer.ggml.prefix_token_id", Role::fim_prefix},  // older names
    {"tokenizer.ggml.suffix_token_id", Role::fim_suffix},
    {"tokenizer.ggml.middle_token_id", Role::fim_middle},
};

constexpr NamedToken end(std::string_view text, Role role = Role::none) {
  return {.text = text, .role = role, .ends = true, .shown = false};
}
constexpr NamedToken place(std::string_view text, Role role) {
  return {.text = text, .role = role, .ends = false, .shown = false};
}
constexpr NamedToken shown(std::string_view text) {
  return {.text = text, .role = Role::none, .ends = false, .shown = true};
}

constexpr NamedToken kNamedTokens[] = {
    end("<|eot_id|>", Role::eot),
    end("<|im_end|>", Role::eot),
    end("<|end|>", Role::eot),
    end("<end_of_turn>", Role::eot),
    end("<|endoftext|>", Role::eot),
    end("<|end_of_text|>", Role::eot),
    end("<EOT>", Role::eot),
    end("_<EOT>", Role::eot),
    end("[EOT]", Role::eot),
    end("<｜end▁of▁sentence｜>", Role::eot),
    end("<end_of_utterance>", Role::eot),
    end("<|eom_id|>", Role::eom),
    end("<|return|>"),
    end("<|call|>"),
    end("<|flush|>"),
    end("<|calls|>"),
    end("</s>"),
    end("[EOS]"),
    end("<eos>"),
    end("<turn|>"),
    end("<|tool_response>"),
    end("[e~["),
    place("<|fim_prefix|>", Role::fim_prefix),
    place("<fim-prefix>", Role::fim_prefix),
    place("<fim_prefix>", Role::fim_prefix),
    place("<｜fim▁begin｜>", Role::fim_prefix),
    place("<PRE>", Role::fim_prefix),
    place("▁<PRE>", Role::fim_prefix),
    place("<|code_prefix|>", Role::fim_prefix),
    place("<|prefix|>", Role::fim_prefix),
    place("<|fim_suffix|>", Role::fim_suffix),
    place("<fim-suffix>", Role::fim_suffix),
    place("<fim_suffix>", Role::fim_suffix),
    place("<｜fim▁hole｜>", Role::fim_suffix),
    place("<SUF>", Role::fim_suffix),
    place("▁<SUF>", Role::fim_suffix),
    place("<|code_suffix|>", Role::fim_suffix),
    place("<|suffix|>", Role::fim_suffix),
    place("<|fim_middle|>", Role::fim_middle),
    place("<fim-middle>", Role::fim_middle),
    place("<fim_middle>", Role::fim_middle),
    place("<｜fim▁end｜>", Role::fim_middle),
    place("<MID>", Role::fim_middle),
    place("▁<MID>", Role::fim_middle),
    place("<|code_middle|>", Role::fim_middle),
    place("<|middle|>", Role::fim_middle),
    place("<|fim_pad|>", Role::fim_pad),
    place("<fim-pad>", Role::fim_pad),
    place("<fim_pad>", Role::fim_pad),
    place("<PAD>", Role::fim_pad),
    place("[PAD]", Role::fim_pad),
    place("<|fim_repo|>", Role::fim_repo),
    place("<|repo_name|>", Role::fim_repo),
    place("<fim-repo>", Role::fim_repo),
    place("<REPO>", Role::fim_repo),
    place("<reponame>", Role::fim_repo),
    place("<|file_sep|>", Role::fim_separator),
    shown("<|channel|>"),
    shown("<|message|>"),
    shown("<|start|>"),
    shown("<|constrain|>"),
};

}  // namespace

std::span<const RoleKey> role_keys() { return kRoleKeys; }
std::span<const NamedToken> named_tokens() { return kNamedTokens; }

}  // namespace tarn::text
