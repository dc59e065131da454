#include "models/gguf/write.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "attend/threads.h"
#include "core/element.h"
#include "io/file.h"
#include "models/gguf/quantize_row.h"

namespace attend::inline v1::models {

namespace {

constexpr std::uint64_t alignment = 32;
constexpr std::int64_t greatest_whole = std::int64_t{1} << 31;  // that is read again

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& to, std::string_view text) {
  append(to, std::uint64_t{text.size()});
  to += text;
}

void append_array(std::string& to, std::uint32_t type, std::size_t count) {
  append(to, std::uint32_t{gguf_value::array});
  append(to, type);
  append(to, std::uint64_t{count});
}

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

// ---- Values ----

void GgufValues::begin(std::string_view key) {
  append_text(bytes_, key);
  ++count_;
}

void GgufValues::add_whole(std::string_view key, std::int64_t number) {
  if (number < 0 || number > greatest_whole)
    fail(ErrorCode::bad_file, "quantize", "{} is {}, which can't be said in GGUF; 0 to 2^31 can", key, number);
  begin(key);
  append(bytes_, std::uint32_t{gguf_value::u32});
  append(bytes_, static_cast<std::uint32_t>(number));
}

void GgufValues::add_number(std::string_view key, double number) {
  begin(key);
  append(bytes_, std::uint32_t{gguf_value::f32});
  append(bytes_, static_cast<float>(number));
}

void GgufValues::add_truth(std::string_view key, bool truth) {
  begin(key);
  append(bytes_, std::uint32_t{gguf_value::boolean});
  append(bytes_, static_cast<std::uint8_t>(truth));
}

void GgufValues::add_text(std::string_view key, std::string_view text) {
  begin(key);
  append(bytes_, std::uint32_t{gguf_value::string});
  append_text(bytes_, text);
}

void GgufValues::add_texts(std::string_view key, const std::vector<std::string>& texts) {
  begin(key);
  append_array(bytes_, gguf_value::string, texts.size());
  for (const std::string& each : texts) append_text(bytes_, each);
}

void GgufValues::add_wholes(std::string_view key, const std::vector<std::int32_t>& numbers) {
  begin(key);
  append_array(bytes_, gguf_value::i32, numbers.size());
  for (const std::int32_t each : numbers) append(bytes_, each);
}

void GgufValues::add_numbers(std::string_view key, const std::vector<float>& numbers) {
  begin(key);
  append_array(bytes_, gguf_value::f32, numbers.size());
  for (const float each : numbers) append(bytes_, each);
}

void GgufValues::add_array_of_bytes(std::string_view key, std::string_view bytes) {
  begin(key);
  append_array(bytes_, gguf_value::u8, bytes.size());
  bytes_ += bytes;
}

void GgufValues::add_bytes(std::string_view key, std::string_view bytes) {
  begin(key);
  bytes_ += bytes;
}

// ---- Rows ----

namespace {

// In the folder the two halves of a head, which rotate together, follow each other; in the file their rows come in
// turn.
std::int64_t row_in_folder(std::int64_t row, std::int64_t head_size) {
  if (head_size == 0) return row;
  const std::int64_t head = row / head_size, inside = row % head_size;
  return head * head_size + inside % 2 * (head_size / 2) + inside / 2;
}

class Rows {
 public:
  // One number a row: of a tensor with one dimension all of it is a row, unless its rows change places.
  explicit Rows(const GgufSource& source) : source_(source), numbers_(source.numbers) {
    if (numbers_.rank() == 1)
      numbers_ = numbers_.reshape(source.head_size > 0 ? Dims{numbers_.size(0), 1} : Dims{1, numbers_.size(0)});
  }

  std::int64_t count() const { return numbers_.size(0); }
  std::uint64_t bytes() const { return bytes_of_row(source_.type, numbers_.size(1)); }
  // False: not all are finite, or the type can't have them.
  bool make(std::int64_t row, std::byte* to) const {
    const std::int64_t from = row_in_folder(row, source_.head_size), size = numbers_.size(1);
    Tensor made = numbers_.slice(0, from, from + 1).to(DType::f32);
    auto* numbers = made.data<float>();
    const float most = largest_number(source_.type);
    for (std::int64_t n = 0; n < size; ++n) {
      if (source_.plus != 0) numbers[n] += source_.plus;  // 0 would lose the sign of -0
      if (!(std::fabs(numbers[n]) <= most)) return false;
    }
    quantize_row(source_.type, numbers, size, to);
    return true;
  }

 private:
  const GgufSource& source_;
  View numbers_;
};

void write_rows(const Place& place, const GgufSource& source, OutputFile& file) {
  constexpr std::uint64_t at_once = std::uint64_t{8} << 20;  // bytes
  const Rows rows(source);
  const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(1, at_once / rows.bytes()));
  std::string made;
  for (std::int64_t begin = 0; begin < rows.count(); begin += step) {
    const std::int64_t count = std::min(step, rows.count() - begin);
    made.resize(static_cast<std::size_t>(static_cast<std::uint64_t>(count) * rows.bytes()));
    std::atomic<bool> fine = true;
    parallel_for(count, 16, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        auto* to = reinterpret_cast<std::byte*>(made.data()) + static_cast<std::uint64_t>(row) * rows.bytes();
        if (!rows.make(begin + row, to)) fine = false;
      }
    });
    if (!fine) fail_at(place, "{} has numbers that {} can't have", quote(source.name), name_of(source.type));
    file.write(made);
  }
}

std::uint64_t bytes_of(const GgufSource& source) {
  const Rows rows(source);
  return static_cast<std::uint64_t>(rows.count()) * rows.bytes();
}

// Where its data begins, from the data's own start.
void append_entry(const GgufSource& source, std::uint64_t begin, std::string& to) {
  append_text(to, source.name);
  const int rank = source.numbers.rank();
  append(to, static_cast<std::uint32_t>(rank));
  for (int axis = rank - 1; axis >= 0; --axis) append(to, static_cast<std::uint64_t>(source.numbers.size(axis)));
  append(to, static_cast<std::uint32_t>(source.type));
  append(to, begin);
}

}  // namespace

std::uint64_t write_gguf(std::string_view function, const std::filesystem::path& path, const GgufValues& values,
                         const std::vector<GgufSource>& tensors) {
  const Place place{std::string(function), quote(path.native())};
  std::string head = "GGUF";
  append(head, std::uint32_t{3});
  append(head, std::uint64_t{tensors.size()});
  append(head, values.count());
  head += values.bytes();
  std::uint64_t begin = 0;
  for (const GgufSource& source : tensors) {
    append_entry(source, begin, head);
    begin += padded(bytes_of(source));
  }
  head.resize(static_cast<std::size_t>(padded(head.size())), '\0');
  OutputFile file(function, path);
  file.write(head);
  for (const GgufSource& source : tensors) {
    write_rows(place, source, file);
    const std::uint64_t bytes = bytes_of(source);
    file.write(std::string(static_cast<std::size_t>(padded(bytes) - bytes), '\0'));
  }
  file.commit();
  return head.size() + begin;
}

}  // namespace attend::inline v1::models
