// A GGUF file's header: its values by key, and where its tensors lie.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/quantized.h"
#include "io/mapped_file.h"

namespace attend::inline v1::models {

// Numbers of these types are known here.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  bf16 = 30,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23
};

// The types of values, and of an array's elements.
namespace gguf_value {
enum : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64, count };
}

// What the format knows of a token.
namespace gguf_token {
enum : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
}

// Whether a model's path is that of a GGUF file: a folder may have such a name too.
bool is_gguf_file(const std::filesystem::path& path);

// "F16"
std::string_view name_of(GgufType type);
// None for F32, F16 and BF16.
std::optional<QuantizedType> quantized(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  Dims shape;                          // rows first, as everywhere else
  std::uint64_t begin = 0, bytes = 0;  // in the file
};

// Versions 2 and 3, little-endian (github.com/ggml-org/ggml/blob/master/docs/gguf.md). All of the header is checked at
// once: no key or name comes twice, the data lie one after another as ggml demands, and in the file. The values stay in
// the map: what is allocated is for the tensors' names.
class GgufFile {
 public:
  // Throws bad_file.
  GgufFile(std::string_view function, const std::filesystem::path& path);

  const Place& place() const { return place_; }
  const std::shared_ptr<const MappedFile>& map() const { return map_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;

  bool has(std::string_view key) const { return values_.contains(key); }
  std::vector<std::string_view> keys() const;
  // Of a key that must be there, and of the type. Text is UTF-8. Throw bad_file.
  std::int64_t whole(std::string_view key, std::int64_t low, std::int64_t high = INT64_MAX) const;
  double number(std::string_view key) const;
  bool truth(std::string_view key) const;
  std::string text(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<std::int64_t> wholes(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  // Of any type, with that before it, as they lie in the file.
  std::string_view bytes(std::string_view key) const;
  // Throws bad_file that begins with the key.
  [[noreturn]] void refuse(std::string_view key, std::string_view what) const;

 private:
  struct Value {
    std::uint32_t type = 0, element = 0;  // element: of an array
    std::uint64_t count = 1;
    std::uint64_t begin = 0;           // of its bytes, or of its first element's
    std::uint64_t start = 0, end = 0;  // of all that follows its key
  };
  class Reader;

  const Value& value(std::string_view key) const;
  const Value& array(std::string_view key) const;

  Place place_;
  std::shared_ptr<const MappedFile> map_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> names_;  // places in tensors_
};

}  // namespace attend::inline v1::models
