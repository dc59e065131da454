// Models on disk: find them in the caches, and write GGUF files.
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

namespace attend::inline v1 {

// A model in the cache of `attend model --get` ($XDG_CACHE_HOME/attend/models, else ~/.cache/attend/models) or of
// Hugging Face's tools ($HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub).
struct ATTEND_API CachedModel {
  std::string name;            // what Model::load() takes: "minilm", "sentence-transformers/all-MiniLM-L6-v2"
  std::filesystem::path path;  // the folder or .gguf file
  std::string type;            // its model_type, or "gguf"; empty: unknown
  std::int64_t bytes = 0;      // size of its files
};
ATTEND_API std::vector<CachedModel> cached_models();
// The folder or .gguf file for a path or a name: the path if it exists, else a cached model. A folder with one .gguf
// file and no config.json stands for that file; "org/model/file.gguf" picks one of several. Never uses the network.
// Throws bad_file.
ATTEND_API std::filesystem::path find_model(const std::filesystem::path& path);

// What quantize() wrote. 8 * bytes / parameters is the bits for each parameter.
struct ATTEND_API Quantized {
  std::int64_t tensors = 0, quantized = 0;  // all tensors, and those stored in blocks
  std::int64_t parameters = 0, bytes = 0;
};

// The type for one of llama.cpp's file names: q8_0, q4_0, q6_k, q4_k_m (q4_k) or q5_k_m (q5_k). None: unknown name.
ATTEND_API std::optional<QuantizedType> file_type_named(std::string_view name);

// Writes a model and its tokenizer to a GGUF file that Model::load() and llama.cpp open.
//
// model: what Model::load() takes. Either a folder of type llama, mistral, qwen2, qwen3, smollm3, gemma2, gemma3_text,
// phi3, gpt2, bert, xlm-roberta, distilbert or modernbert, or a .gguf file with F32, F16 or BF16 matrices.
//
// Each matrix gets the type that llama.cpp's quantizer gives it in such a file: usually `type`, more bits for some, and
// blocks of 32 if its rows are not a multiple of 256 long. Matrices whose rows are not a multiple of 32 become F16.
// Norms, biases and position tables become F32. The file appears only when complete.
//
// Throws bad_file, also for what a GGUF file can't hold: a task's head, or a tokenizer or configuration that would be
// read differently. Throws bad_value for a type that is not one of file_type_named().
ATTEND_API Quantized quantize(const std::filesystem::path& model, const std::filesystem::path& out, QuantizedType type);

}  // namespace attend::inline v1
