// Models on disk: those in the caches, and GGUF files that are written.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no model_files.h"
#endif

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/quantized.h"

namespace attend::inline v0 {

// A model that attend model --get or Hugging Face's tools left in their caches: $XDG_CACHE_HOME/attend/models (else
// ~/.cache/...), and $HF_HUB_CACHE (else $HF_HOME/hub, else ~/.cache/huggingface/hub).
struct ATTEND_API CachedModel {
  std::string name;            // which Model::load() takes: "minilm", "sentence-transformers/all-MiniLM-L6-v2"
  std::filesystem::path path;  // the folder or .gguf file
  std::string type;            // its model_type, or "gguf"; empty: it says none
  std::int64_t bytes = 0;      // that its files have
};
ATTEND_API std::vector<CachedModel> cached_models();
// The folder or .gguf file that a path or a name stands for: what is there under it, else a cached model. A folder with
// one .gguf file, and no config.json, stands for the file; of several, "org/model/file.gguf" names one. Touches no
// network. Throws bad_file.
ATTEND_API std::filesystem::path find_model(const std::filesystem::path& path);

// What a file has: bits of a parameter are 8 * bytes / parameters.
struct ATTEND_API Quantized {
  std::int64_t tensors = 0, quantized = 0;  // how many, and of these those in blocks
  std::int64_t parameters = 0, bytes = 0;
};

// The type that quantize() makes a file of, by llama.cpp's name of such files: q8_0 and q4_0, q6_k, and q4_k and q5_k
// by "q4_k_m" and "q5_k_m". None: there is no such file.
ATTEND_API std::optional<QuantizedType> file_type_named(std::string_view name);

// Writes a model to a GGUF file that Model::load() and llama.cpp open, with its tokenizer. model: what Model::load()
// takes: a folder of type llama, mistral, qwen2, qwen3, smollm3, gemma2, gemma3_text, phi3, gpt2, bert, xlm-roberta,
// distilbert or modernbert, or a .gguf file whose matrices are F32, F16 or BF16. Matrices become `type`, or what
// llama.cpp's quantizer gives them in a file of it: more bits for some, and blocks of 32 numbers where rows are no
// multiple of 256. Those whose rows are no multiple of 32 become F16; norms, biases and tables of positions F32. The
// file appears when it is whole. Throws bad_file, also for what a GGUF file can't say: a task's head, a tokenizer or a
// configuration that would be read as another one; bad_value for a type that makes no such file.
ATTEND_API Quantized quantize(const std::filesystem::path& model, const std::filesystem::path& out, QuantizedType type);

}  // namespace attend::inline v0
