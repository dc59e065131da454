// Matrices whose numbers share scales in blocks, as ggml and its GGUF files have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attend/api.h"
#include "attend/dtype.h"

namespace attend::inline v0 {

// The layouts of ggml (github.com/ggml-org/ggml, src/ggml-common.h), by its names. Blocks lie along a row.
enum class ATTEND_API QuantizedType : std::uint8_t {
  q4_0,    // 32 numbers of 4 bits and a scale
  q4_1,    // and what is added
  q5_0,    // the same of 5 bits
  q5_1,    //
  q8_0,    // 32 numbers of 8 bits and a scale
  q2_k,    // 256 numbers of 2 to 6 bits, the scales of 16 or 32 of them quantized too
  q3_k,    //
  q4_k,    //
  q5_k,    //
  q6_k,    //
  iq4_nl,  // 32 numbers from a table of 16, and a scale
  iq4_xs,  // 256 of them, with a scale for every 32
};

// "Q4_K"
ATTEND_API std::string_view name_of(QuantizedType type);
// How many numbers a block holds, and in how many bytes.
ATTEND_API std::int64_t block_size(QuantizedType type);
ATTEND_API std::int64_t block_bytes(QuantizedType type);

// What becomes of the rows that meet quantized weights. Rounded rows are whole numbers times a scale for each 32
// columns.
enum class ATTEND_API Activations : std::uint8_t {
  exact,  // they stay as fine as f32 is
  fast,   // 16 bits
  int8,   // 8 bits
};
// "exact", "fast", "int8"
ATTEND_API std::string_view name_of(Activations activations);
// The one of that name; none: there is none.
ATTEND_API std::optional<Activations> activations_named(std::string_view name);

// A matrix [rows,columns] of somebody else's memory, row after row, each of whole blocks.
struct ATTEND_API QuantizedView {
  const void* data = nullptr;
  QuantizedType type = QuantizedType::q4_0;
  std::int64_t rows = 0, columns = 0;
  // Not 0: rows are those of heads of that size, and row n of a head's first half stands at 2 n, of the second at
  // 2 n + 1, as llama.cpp wants them for rotary positions. What is made of the view has them in order.
  std::int64_t interleaved_head = 0;

  std::int64_t row_bytes() const { return columns / block_size(type) * block_bytes(type); }
};

}  // namespace attend::inline v0
