// Matrices quantized in blocks that share scales, as in ggml's GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attend/api.h"
#include "attend/dtype.h"

namespace attend::inline v1 {

// Layouts and names of ggml (github.com/ggml-org/ggml, src/ggml-common.h). Blocks lie along a row.
enum class ATTEND_API QuantizedType : std::uint8_t {
  q4_0,    // 32 numbers of 4 bits and a scale
  q4_1,    // the same and an offset
  q5_0,    // 32 numbers of 5 bits and a scale
  q5_1,    // the same and an offset
  q8_0,    // 32 numbers of 8 bits and a scale
  q2_k,    // 256 numbers of 2 bits, with quantized scales for each 16 or 32
  q3_k,    // the same of 3 bits
  q4_k,    // of 4 bits
  q5_k,    // of 5 bits
  q6_k,    // of 6 bits
  iq4_nl,  // 32 numbers from a table of 16, and a scale
  iq4_xs,  // 256 of them, with a scale for each 32
};

// "Q4_K"
ATTEND_API std::string_view name_of(QuantizedType type);
// Numbers in a block, and its bytes.
ATTEND_API std::int64_t block_size(QuantizedType type);
ATTEND_API std::int64_t block_bytes(QuantizedType type);

// How rows that meet quantized weights are rounded: to integers times a scale for each 32 columns.
enum class ATTEND_API Activations : std::uint8_t {
  exact,  // not rounded: f32 precision
  fast,   // to 16 bits
  int8,   // to 8 bits
};
// "exact", "fast", "int8"
ATTEND_API std::string_view name_of(Activations activations);
// The setting with that name; none if unknown.
ATTEND_API std::optional<Activations> activations_named(std::string_view name);

// Someone else's matrix [rows,columns], row after row of whole blocks.
struct ATTEND_API QuantizedView {
  const void* data = nullptr;
  QuantizedType type = QuantizedType::q4_0;
  std::int64_t rows = 0, columns = 0;
  // Not 0: rows are those of heads of this size, interleaved as llama.cpp wants for rotary positions: row n of a head's
  // first half is at 2 n, of the second half at 2 n + 1. Results have them in order.
  std::int64_t interleaved_head = 0;

  std::int64_t row_bytes() const { return columns / block_size(type) * block_bytes(type); }
};

}  // namespace attend::inline v1
