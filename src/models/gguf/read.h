// A model in a GGUF file, as the Hugging Face folder that it was made from has it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/gguf/file.h"
#include "models/weights.h"
#include "tokenizer/file.h"

namespace attend::inline v1::models {

struct Gguf {
  GgufFile file;
  nlohmann::json config;  // what is in config.json
  // "model.layers.0.self_attn.q_proj.weight": F32, F16 and BF16 where they lie, of other types widened to f32. The rows
  // of q_proj and k_proj are in the order of the folder.
  Weights weights;
};

// Throws bad_file: for an architecture, a key or a tensor that is not known, too.
Gguf read_gguf(std::string_view function, const std::filesystem::path& path);

// A whole tokenizer.json, which is read instead of the other keys.
inline constexpr const char* gguf_whole_tokenizer = "tokenizer.huggingface.json";
// Throws bad_file where the file has none.
std::string gguf_tokenizer_json(std::string_view function, const std::filesystem::path& path);

// Throws bad_file: for a pre-tokeniser that is not known here, too.
tokenizer::TokenizerFile gguf_tokenizer(std::string_view function, const std::filesystem::path& path);

// For a file that has a score of each token instead of merges: the best token is made first, and of its ways that with
// the longest parts.
std::vector<tokenizer::Merge> derive_merges(const std::vector<std::string>& tokens, const std::vector<double>& scores,
                                            const tokenizer::TokenMap& ids);

}  // namespace attend::inline v1::models
