#include "models/gguf/file.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/element.h"
#include "core/utf8.h"
#include "io/element_bytes.h"
#include "io/file.h"

namespace attend::inline v1::models {

namespace {

constexpr std::uint64_t size_of_type[gguf_value::count] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
// The fewest bytes that a string, a value with its key, or a tensor's entry takes: so many can follow at most.
constexpr std::uint64_t least_string = 8, least_value = 13, least_tensor = 24;
constexpr std::uint64_t longest_key = 65535, longest_name = 64;  // as the format has it
constexpr std::uint32_t most_dimensions = 4;

struct Type {
  std::uint32_t code;
  std::string_view name;
  std::uint64_t bytes = 0;                      // of a number; 0: it is of blocks, or not read
  std::optional<QuantizedType> quantized = {};  // of blocks
};
using Q = QuantizedType;
constexpr Type types[] = {{0, "F32", 4},
                          {1, "F16", 2},
                          {2, "Q4_0", 0, Q::q4_0},
                          {3, "Q4_1", 0, Q::q4_1},
                          {6, "Q5_0", 0, Q::q5_0},
                          {7, "Q5_1", 0, Q::q5_1},
                          {8, "Q8_0", 0, Q::q8_0},
                          {9, "Q8_1"},
                          {10, "Q2_K", 0, Q::q2_k},
                          {11, "Q3_K", 0, Q::q3_k},
                          {12, "Q4_K", 0, Q::q4_k},
                          {13, "Q5_K", 0, Q::q5_k},
                          {14, "Q6_K", 0, Q::q6_k},
                          {15, "Q8_K"},
                          {16, "IQ2_XXS"},
                          {17, "IQ2_XS"},
                          {18, "IQ3_XXS"},
                          {19, "IQ1_S"},
                          {20, "IQ4_NL", 0, Q::iq4_nl},
                          {21, "IQ3_S"},
                          {22, "IQ2_S"},
                          {23, "IQ4_XS", 0, Q::iq4_xs},
                          {24, "I8"},
                          {25, "I16"},
                          {26, "I32"},
                          {27, "I64"},
                          {28, "F64"},
                          {29, "IQ1_M"},
                          {30, "BF16", 2},
                          {34, "TQ1_0"},
                          {35, "TQ2_0"},
                          {39, "MXFP4"}};

bool is_read(const Type& type) {
  return type.bytes > 0 || type.quantized;
}

const Type& type_of(GgufType type) {
  return *std::ranges::find(types, static_cast<std::uint32_t>(type), &Type::code);
}

std::int64_t load_whole(std::uint32_t type, const std::byte* from) {
  switch (type) {
    case gguf_value::u8:
      return load<std::uint8_t>(from);
    case gguf_value::i8:
      return load<std::int8_t>(from);
    case gguf_value::u16:
      return load<std::uint16_t>(from);
    case gguf_value::i16:
      return load<std::int16_t>(from);
    case gguf_value::u32:
      return load<std::uint32_t>(from);
    case gguf_value::i32:
      return load<std::int32_t>(from);
    default:
      return load<std::int64_t>(from);  // beyond 63 bits it is negative, and what asks refuses that
  }
}

bool is_whole(std::uint32_t type) {
  return type <= gguf_value::i32 || type == gguf_value::u64 || type == gguf_value::i64;
}

double load_number(std::uint32_t type, const std::byte* from) {
  return type == gguf_value::f32 ? double{load<float>(from)} : load<double>(from);
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

bool is_gguf_file(const std::filesystem::path& path) {
  return path.extension() == ".gguf" && !is_folder(path);
}

std::string_view name_of(GgufType type) {
  return type_of(type).name;
}

std::optional<QuantizedType> quantized(GgufType type) {
  return type_of(type).quantized;
}

// Goes through the header once.
class GgufFile::Reader {
 public:
  explicit Reader(GgufFile& to) : to_(to), place_(to.place_), size_(to.map_->size()) {}

  void run() {
    read_start();
    const auto tensors = take<std::uint64_t>("the number of tensors"),
               values = take<std::uint64_t>("the number of values");
    check_count(values, least_value, "values");
    for (std::uint64_t n = 0; n < values; ++n) read_value();
    check_count(tensors, least_tensor, "tensors");
    for (std::uint64_t n = 0; n < tensors; ++n) read_tensor();
    place_data();
  }

 private:
  template <class T>
  T take(std::string_view what) {
    if (sizeof(T) > size_ - at_) fail_at(place_, "byte {}: {} was expected, but the file ends", at_, what);
    const T value = load<T>(to_.map_->data() + at_);
    at_ += sizeof(T);
    return value;
  }

  void check_count(std::uint64_t count, std::uint64_t least_bytes, std::string_view of) const {
    if (count <= (size_ - at_) / least_bytes) return;
    fail_at(place_, "byte {}: {} {} can't follow in {} bytes: cut short, or not a GGUF file", at_, count, of,
            size_ - at_);
  }

  std::string_view take_string(std::string_view what) {
    const auto length = take<std::uint64_t>(what);
    if (length > size_ - at_) {
      fail_at(place_, "byte {}: {} has {} bytes, but {} follow", at_ - 8, what, length, size_ - at_);
    }
    const std::string_view text(reinterpret_cast<const char*>(to_.map_->data() + at_),
                                static_cast<std::size_t>(length));
    at_ += length;
    return text;
  }

  // A key, or a tensor's name.
  std::string take_name(std::string_view what, std::uint64_t longest) {
    const std::uint64_t at = at_;
    std::string name(take_string(what));
    if (name.empty() || name.size() > longest) {
      fail_at(place_, "byte {}: {} has {} bytes, expected 1 to {}", at, what, name.size(), longest);
    }
    return name;
  }

  void read_start() {
    if (size_ == 0) fail_at(place_, "is empty");
    if (size_ < 4 || std::memcmp(to_.map_->data(), "GGUF", 4) != 0) {
      fail_at(place_, "byte 0: is not a GGUF file: it does not begin with GGUF");
    }
    at_ = 4;
    const auto version = take<std::uint32_t>("the version");
    if (version == 2 || version == 3) return;
    if ((version & 0xFFFF) == 0) fail_at(place_, "byte 4: is big-endian, which is not read");
    fail_at(place_, "byte 4: is of version {}; 2 and 3 are read", version);
  }

  // Made where they are needed alone: to quote a name takes longer than to read its value.
  Place at_key(std::string_view key) const { return place_.in(quote(key)); }
  Place at_tensor(std::string_view name) const { return place_.in("tensor " + quote(name)); }

  void skip_elements(const Value& value, std::string_view key) {
    check_count(value.count, value.element == gguf_value::string ? least_string : size_of_type[value.element],
                "elements");
    if (value.element != gguf_value::string) {
      at_ += value.count * size_of_type[value.element];
    } else {
      for (std::uint64_t n = 0; n < value.count; ++n) take_string("a text");
    }
    if (value.element == gguf_value::boolean) check_booleans(value, key);
  }

  void check_booleans(const Value& value, std::string_view key) const {
    for (std::uint64_t at = value.begin; at < value.begin + value.count; ++at) {
      if (load<std::uint8_t>(to_.map_->data() + at) > 1) fail_at(at_key(key), "byte {}: a bool is neither 0 nor 1", at);
    }
  }

  void read_value() {
    const std::string key = take_name("a key", longest_key);
    Value value;
    value.start = at_;
    value.type = take<std::uint32_t>("a type");
    if (value.type == gguf_value::array) {
      value.element = take<std::uint32_t>("a type");
      value.count = take<std::uint64_t>("a length");
    }
    value.begin = at_;
    const std::uint32_t element = value.type == gguf_value::array ? value.element : value.type;
    if (element >= gguf_value::count) fail_at(at_key(key), "its type {} is not known", element);
    if (element == gguf_value::array) fail_at(at_key(key), "an array of arrays is not read");
    value.element = element;
    skip_elements(value, key);
    value.end = at_;
    if (!to_.values_.try_emplace(key, value).second) fail_at(at_key(key), "comes twice");
  }

  Dims take_shape(std::string_view name) {
    const auto rank = take<std::uint32_t>("the number of dimensions");
    if (rank > most_dimensions)
      fail_at(at_tensor(name), "has {} dimensions, at most {} are read", rank, most_dimensions);
    std::vector<std::int64_t> sizes;
    for (std::uint32_t n = 0; n < rank; ++n) {
      const auto size = take<std::uint64_t>("a size");
      if (size == 0 || size > INT64_MAX) fail_at(at_tensor(name), "a size is {}, expected 1 to 2^63 - 1", size);
      sizes.push_back(static_cast<std::int64_t>(size));
    }
    std::ranges::reverse(sizes);  // there the size that runs fastest comes first
    return Dims(sizes);
  }

  const Type& read_type(std::string_view name) {
    const auto code = take<std::uint32_t>("a type");
    const auto type = std::ranges::find(types, code, &Type::code);
    if (type == std::end(types) || !is_read(*type)) {
      std::vector<std::string_view> read;
      for (const Type& each : types)
        if (is_read(each)) read.push_back(each.name);
      fail_at(at_tensor(name), "its type {} is not read; {} are",
              type == std::end(types) ? fmt::format("{}", code) : std::string(type->name), fmt::join(read, ", "));
    }
    return *type;
  }

  // begin: from the data's own start, until place_data().
  void read_tensor() {
    GgufTensor tensor;
    tensor.name = take_name("a tensor's name", longest_name);
    tensor.shape = take_shape(tensor.name);
    const Type& type = read_type(tensor.name);
    tensor.type = static_cast<GgufType>(type.code);
    tensor.begin = take<std::uint64_t>("an offset");
    const std::int64_t columns = tensor.shape.rank() == 0 ? 1 : tensor.shape[tensor.shape.rank() - 1];
    const std::int64_t block = type.quantized ? block_size(*type.quantized) : 1;
    if (columns % block != 0) {
      fail_at(at_tensor(tensor.name), "shape {}: rows of {} are not a multiple of {} numbers", tensor.shape, type.name,
              block);
    }
    // As f64, the widest: whatever is made of them, 63 bits can count it.
    const auto widest = byte_count(DType::f64, {tensor.shape.begin(), tensor.shape.end()});
    if (!widest) fail_at(at_tensor(tensor.name), "shape {} has more bytes than 63 bits can count", tensor.shape);
    const std::uint64_t blocks = *widest / 8 / static_cast<std::uint64_t>(block);
    tensor.bytes = blocks * (type.quantized ? static_cast<std::uint64_t>(block_bytes(*type.quantized)) : type.bytes);
    if (!to_.names_.emplace(tensor.name, to_.tensors_.size()).second) fail_at(at_tensor(tensor.name), "comes twice");
    to_.tensors_.push_back(std::move(tensor));
  }

  std::uint64_t alignment() const {
    constexpr const char* key = "general.alignment";
    if (!to_.has(key)) return 32;
    const auto given = static_cast<std::uint64_t>(to_.whole(key, 1, UINT32_MAX));
    if (!std::has_single_bit(given)) to_.refuse(key, fmt::format("{} is not a power of two", given));
    return given;
  }

  void place_data() {
    const std::uint64_t aligned = alignment(), start = round_up(at_, aligned);
    if (start > size_ && !to_.tensors_.empty()) {
      fail_at(place_, "byte {}: the data was expected at byte {}, but the file ends", at_, start);
    }
    std::uint64_t next = start;
    for (GgufTensor& tensor : to_.tensors_) {
      if (tensor.begin != next - start) {
        fail_at(at_tensor(tensor.name), "its data begins at {} of the data, expected {}: after the tensor before it",
                tensor.begin, next - start);
      }
      if (next > size_ || tensor.bytes > size_ - next) {
        fail_at(at_tensor(tensor.name), "its {} bytes from byte {} on reach beyond the file, which ends at byte {}",
                tensor.bytes, next, size_);
      }
      tensor.begin = next;
      next = round_up(next + tensor.bytes, aligned);
    }
    if (size_ > next) fail_at(place_, "{} trailing bytes follow the last tensor's data", size_ - next);
  }

  GgufFile& to_;
  const Place& place_;
  std::uint64_t size_, at_ = 0;
};

GgufFile::GgufFile(std::string_view function, const std::filesystem::path& path) {
  const InputFile file(function, path);
  place_ = file.place();
  map_ = std::make_shared<const MappedFile>(file);
  Reader(*this).run();
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> all;
  all.reserve(values_.size());
  for (const auto& [key, value] : values_) all.push_back(key);
  return all;
}

std::string_view GgufFile::bytes(std::string_view key) const {
  const Value& found = value(key);
  return {reinterpret_cast<const char*>(map_->data() + found.start), static_cast<std::size_t>(found.end - found.start)};
}

void GgufFile::refuse(std::string_view key, std::string_view what) const {
  fail_at(place_.in(quote(key)), "{}", what);
}

const GgufFile::Value& GgufFile::value(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) fail_at(place_, "{} is missing", quote(key));
  return found->second;
}

const GgufFile::Value& GgufFile::array(std::string_view key) const {
  const Value& found = value(key);
  if (found.type != gguf_value::array) refuse(key, "expected an array");
  return found;
}

std::int64_t GgufFile::whole(std::string_view key, std::int64_t low, std::int64_t high) const {
  const Value& found = value(key);
  const std::int64_t number = is_whole(found.type) ? load_whole(found.type, map_->data() + found.begin) : 0;
  if (!is_whole(found.type) || number < low || number > high) {
    refuse(key, fmt::format("expected a whole number from {} to {}", low, high));
  }
  return number;
}

double GgufFile::number(std::string_view key) const {
  const Value& found = value(key);
  if (found.type != gguf_value::f32 && found.type != gguf_value::f64) refuse(key, "expected a floating-point number");
  const double number = load_number(found.type, map_->data() + found.begin);
  if (!std::isfinite(number)) refuse(key, "expected a finite number");
  return number;
}

bool GgufFile::truth(std::string_view key) const {
  const Value& found = value(key);
  if (found.type != gguf_value::boolean) refuse(key, "expected a bool");
  return load<std::uint8_t>(map_->data() + found.begin) != 0;
}

std::string GgufFile::text(std::string_view key) const {
  const Value& found = value(key);
  if (found.type != gguf_value::string) refuse(key, "expected text");
  const std::byte* data = map_->data() + found.begin;
  const std::string_view text(reinterpret_cast<const char*>(data + 8),
                              static_cast<std::size_t>(load<std::uint64_t>(data)));
  if (!is_utf8(text)) refuse(key, "is not UTF-8");
  return std::string(text);
}

std::vector<std::string> GgufFile::texts(std::string_view key) const {
  const Value& found = array(key);
  if (found.element != gguf_value::string) refuse(key, "expected an array of texts");
  std::vector<std::string> all;
  const std::byte* data = map_->data() + found.begin;
  for (std::uint64_t n = 0; n < found.count; ++n) {
    const auto length = static_cast<std::size_t>(load<std::uint64_t>(data));
    const std::string_view text(reinterpret_cast<const char*>(data + 8), length);
    if (!is_utf8(text)) refuse(key, fmt::format("{}: {} is not UTF-8", n, quote(text)));
    all.emplace_back(text);
    data += 8 + length;
  }
  return all;
}

std::vector<std::int64_t> GgufFile::wholes(std::string_view key) const {
  const Value& found = array(key);
  if (!is_whole(found.element)) refuse(key, "expected an array of whole numbers");
  std::vector<std::int64_t> all;
  const std::byte* data = map_->data() + found.begin;
  for (std::uint64_t n = 0; n < found.count; ++n) {
    all.push_back(load_whole(found.element, data + n * size_of_type[found.element]));
  }
  return all;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  const Value& found = array(key);
  if (found.element != gguf_value::f32 && found.element != gguf_value::f64)
    refuse(key, "expected an array of floating-point numbers");
  std::vector<double> all;
  const std::byte* data = map_->data() + found.begin;
  for (std::uint64_t n = 0; n < found.count; ++n) {
    all.push_back(load_number(found.element, data + n * size_of_type[found.element]));
  }
  return all;
}

}  // namespace attend::inline v1::models
