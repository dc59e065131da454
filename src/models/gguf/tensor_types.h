// Which type each tensor of a quantized GGUF file has.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/gguf/write.h"

namespace attend::inline v1::models {

// A kind of file: most of its matrices are of `type`, and what llama.cpp gives more bits has more.
struct GgufMixture {
  std::string_view name;  // "q4_k_m", as llama.cpp's quantizer calls it
  QuantizedType quantized;
  GgufType type;
  std::int64_t number;   // of general.file_type
  bool favours = false;  // values' projections and those down from the MLP have more bits in some layers
};

// Null: quantize() writes no such file.
const GgufMixture* mixture_of(QuantizedType type);
const GgufMixture* mixture_named(std::string_view name);

// What the choice depends on, besides the tensors.
struct GgufModel {
  std::string_view architecture;
  std::int64_t layers, heads, kv_heads;
};

// Gives each tensor its type: matrices as llama.cpp's quantizer has it (beside F16, where it fails), those of positions
// and token types and what is no matrix F32.
void choose_types(const GgufMixture& of, const GgufModel& model, std::vector<GgufSource>& tensors);

}  // namespace attend::inline v1::models
