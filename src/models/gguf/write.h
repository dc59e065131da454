// A GGUF file, written: version 3, little-endian. Tensors are made row by row, in the type that the file has them in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor.h"
#include "models/gguf/file.h"

namespace attend::inline v1::models {

// Values by key, in the order in which they come, as they lie in the file.
class GgufValues {
 public:
  // As u32.
  void add_whole(std::string_view key, std::int64_t number);
  // As f32.
  void add_number(std::string_view key, double number);
  void add_truth(std::string_view key, bool truth);
  void add_text(std::string_view key, std::string_view text);
  void add_texts(std::string_view key, const std::vector<std::string>& texts);
  void add_wholes(std::string_view key, const std::vector<std::int32_t>& numbers);
  void add_numbers(std::string_view key, const std::vector<float>& numbers);
  // As an array of u8.
  void add_array_of_bytes(std::string_view key, std::string_view bytes);
  // With its type before it.
  void add_bytes(std::string_view key, std::string_view bytes);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key);

  std::string bytes_;
  std::uint64_t count_ = 0;
};

struct GgufSource {
  std::string name;
  View numbers;                   // f32, f16 or bf16, of any strides
  GgufType type = GgufType::f32;  // that it becomes
  std::int64_t head_size = 0;     // of Llama's q and k: a head's rows are put in the order of llama.cpp; 0: they stay
  float plus = 0;                 // is added to each
};

// Throws bad_file, also for a tensor with numbers that the type can't have. Returns the file's bytes.
std::uint64_t write_gguf(std::string_view function, const std::filesystem::path& path, const GgufValues& values,
                         const std::vector<GgufSource>& tensors);

}  // namespace attend::inline v1::models
