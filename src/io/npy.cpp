#include "io/npy.h"

#include <algorithm>
#include <optional>

#include "attend/io.h"
#include "core/element.h"
#include "io/element_bytes.h"

namespace attend::inline v1 {

namespace {

struct NpyType {
  std::string_view code;
  DType dtype;
};
constexpr NpyType npy_types[] = {{"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64},    {"i8", DType::i64},
                                 {"i1", DType::i8},  {"u1", DType::u8},  {"b1", DType::boolean}};
constexpr std::string_view accepted_types = "float16, float32, float64, int64, int8, uint8 and bool are read";

struct NpyHeader {
  DType dtype = DType::f32;
  bool big_endian = false;
  bool fortran_order = false;
  Dims shape;
};

// The header's text: a Python dictionary with exactly the keys descr, fortran_order and shape.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const Place& place, std::uint64_t start)
      : text_(text), place_(place), start_(start) {}

  NpyHeader parse();

 private:
  void parse_value(std::string_view key);
  void parse_descr();
  bool parse_bool();
  Dims parse_shape();
  std::int64_t parse_size();
  std::string_view parse_string();
  void skip_space();
  bool accept(std::string_view token);
  void expect(std::string_view token);
  bool at_digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
    fail_at(place_, "byte {}: header: {}", start_ + at_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view text_;
  const Place& place_;
  std::uint64_t start_;
  std::size_t at_ = 0;
  NpyHeader header_;
};

NpyHeader HeaderParser::parse() {
  constexpr std::string_view keys[] = {"descr", "fortran_order", "shape"};
  bool seen[3] = {};
  expect("{");
  while (!accept("}")) {
    const std::string_view key = parse_string();
    const auto known = std::find(std::begin(keys), std::end(keys), key);
    if (known == std::end(keys)) wrong("key {} is not descr, fortran_order or shape", quote(key));
    if (std::exchange(seen[known - keys], true)) wrong("key '{}' comes twice", key);
    expect(":");
    parse_value(key);
    if (accept("}")) break;
    expect(",");
  }
  for (int i = 0; i < 3; ++i) {
    if (!seen[i]) wrong("key '{}' is missing", keys[i]);
  }
  skip_space();
  if (at_ < text_.size()) wrong("{} follows the dictionary", quote(text_.substr(at_)));
  return header_;
}

void HeaderParser::parse_value(std::string_view key) {
  if (key == "descr") {
    parse_descr();
  } else if (key == "fortran_order") {
    header_.fortran_order = parse_bool();
  } else {
    header_.shape = parse_shape();
  }
}

void HeaderParser::parse_descr() {
  skip_space();
  if (at_ < text_.size() && text_[at_] == '[') wrong("structured dtypes are not read; {}", accepted_types);
  const std::string_view descr = parse_string();
  std::string_view code = descr;
  if (!code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos) code.remove_prefix(1);
  if (code.starts_with('O')) wrong("object dtype {} (Python objects) is not read; {}", quote(descr), accepted_types);
  const auto type = std::find_if(std::begin(npy_types), std::end(npy_types), [&](auto& t) { return t.code == code; });
  if (type == std::end(npy_types)) wrong("dtype {} is not read; {}", quote(descr), accepted_types);
  header_.dtype = type->dtype;
  header_.big_endian = descr[0] == '>';
}

bool HeaderParser::parse_bool() {
  if (accept("True")) return true;
  if (accept("False")) return false;
  wrong("fortran_order is neither True nor False");
}

// "()", "(3,)", "(3, 4)"; one number without a comma is no tuple in Python.
Dims HeaderParser::parse_shape() {
  Dims shape;
  bool comma = true;
  expect("(");
  while (!accept(")")) {
    if (!comma) wrong("expected ',' or ')' in shape");
    if (shape.rank() == Dims::max_rank) wrong("shape has more than {} dimensions", Dims::max_rank);
    shape.push_back(parse_size());
    comma = accept(",");
  }
  if (shape.rank() == 1 && !comma) wrong("shape ({}) is a number and not a tuple", shape[0]);
  return shape;
}

std::int64_t HeaderParser::parse_size() {
  skip_space();
  if (!at_digit()) wrong("expected a size in shape, a decimal number of 0 or more");
  std::int64_t size = 0;
  for (; at_digit(); ++at_) {
    if (__builtin_mul_overflow(size, std::int64_t{10}, &size) ||
        __builtin_add_overflow(size, std::int64_t{text_[at_] - '0'}, &size)) {
      wrong("a size in shape is more than 64 bits can count");
    }
  }
  if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
  return size;
}

std::string_view HeaderParser::parse_string() {
  skip_space();
  if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) wrong("expected a string in quotes");
  const std::size_t end = text_.find(text_[at_], at_ + 1);
  if (end == std::string_view::npos) wrong("a string does not end");
  const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
  if (content.find('\\') != std::string_view::npos) wrong("a string has a backslash: {}", quote(content));
  at_ = end + 1;
  return content;
}

void HeaderParser::skip_space() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
}

bool HeaderParser::accept(std::string_view token) {
  skip_space();
  if (!text_.substr(at_).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void HeaderParser::expect(std::string_view token) {
  if (accept(token)) return;
  if (at_ == text_.size()) wrong("ends where '{}' was expected", token);
  wrong("expected '{}', got {}", token, quote(text_.substr(at_, 1)));
}

NpyHeader read_header(ByteStream& stream) {
  // Eight sizes take a few hundred bytes; NumPy itself refuses more than 10,000.
  constexpr std::uint32_t longest = 1 << 20;
  char magic[8];
  if (stream.size() == 0) fail_at(stream.place(), "is empty");
  stream.read(magic, std::min<std::uint64_t>(stream.size(), npy_magic.size()));
  if (stream.position() < npy_magic.size() || std::string_view(magic, npy_magic.size()) != npy_magic) {
    fail_at(stream.place(), "byte 0: is not an .npy file, which begins with \\x93NUMPY");
  }
  stream.read(magic + npy_magic.size(), 2);
  const int major = static_cast<unsigned char>(magic[6]);
  const int minor = static_cast<unsigned char>(magic[7]);
  if (major < 1 || major > 3 || minor != 0) {
    fail_at(stream.place(), "byte 6: .npy version {}.{}; 1.0, 2.0 and 3.0 are read", major, minor);
  }
  std::uint32_t length = 0;
  stream.read(&length, major == 1 ? 2 : 4);
  if (length > longest) fail_at(stream.place(), "byte 8: a header of {} bytes; at most {} are read", length, longest);
  const std::uint64_t start = stream.position();
  std::string text(length, '\0');
  stream.read(text.data(), length);
  return HeaderParser(text, stream.place(), start).parse();
}

void swap_bytes(Tensor& tensor) {
  const std::int64_t size = size_of(tensor.dtype());
  auto* bytes = static_cast<std::byte*>(tensor.raw());
  for (std::int64_t i = 0; i < tensor.count(); ++i, bytes += size) std::reverse(bytes, bytes + size);
}

// The first axis runs fastest.
Dims fortran_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t stride = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

// The tensor of that shape whose elements lie so in `columns`.
Tensor from_fortran_order(const Tensor& columns, const Dims& shape) {
  return View(columns.raw(), columns.dtype(), shape, fortran_strides(shape)).clone();
}

class FileStream : public ByteStream {
 public:
  explicit FileStream(const InputFile& file) : ByteStream(file.place(), file.size()), file_(file) {}

 private:
  void fill(void* to, std::uint64_t count) override { file_.read(position(), to, count); }

  const InputFile& file_;
};

}  // namespace

void ByteStream::read(void* to, std::uint64_t count) {
  if (count > size_ - position_) {
    fail_at(place_, "byte {}: ends {} bytes short of the {} that were expected here: cut short", position_,
            count - (size_ - position_), count);
  }
  if (count == 0) return;  // an empty tensor has no memory, which zlib would take for another question
  fill(to, count);
  position_ += count;
}

namespace {

// One whose elements are all that is left.
NpyHeader read_checked_header(ByteStream& stream) {
  const NpyHeader header = read_header(stream);
  const Dims& shape = header.shape;
  const std::optional<std::uint64_t> bytes = byte_count(header.dtype, {shape.begin(), shape.end()});
  if (!bytes)
    fail_at(stream.place(), "header: shape {} of {} has more bytes than 63 bits can count", shape, header.dtype);
  const std::uint64_t start = stream.position();
  if (const std::uint64_t left = stream.size() - start; left != *bytes) {
    fail_at(stream.place(), "byte {}: shape {} of {} takes {} bytes, but {} are left: {}", start, shape, header.dtype,
            *bytes, left, left < *bytes ? "cut short" : "trailing bytes");
  }
  return header;
}

}  // namespace

Tensor read_npy(ByteStream& stream) {
  const NpyHeader header = read_checked_header(stream);
  const std::uint64_t start = stream.position();
  Tensor out = Tensor::uninitialized(header.shape, header.dtype);
  stream.read(out.raw(), stream.size() - start);
  require_booleans(out, stream.place(), start);
  if (header.big_endian) swap_bytes(out);
  return header.fortran_order ? from_fortran_order(out, header.shape) : std::move(out);
}

View view_npy(const InputFile& file, const MappedFile& mapped) {
  FileStream stream(file);
  const NpyHeader header = read_checked_header(stream);
  if (header.big_endian || (header.fortran_order && header.shape.rank() > 1) || header.dtype == DType::boolean)
    fail_at(file.place(), "is not read where it lies: numbers, little-endian and in C order, are");
  if (stream.position() % static_cast<std::uint64_t>(size_of(header.dtype)) != 0)
    fail_at(file.place(), "its numbers begin at byte {}, where {} can't be read", stream.position(), header.dtype);
  return {mapped.data() + stream.position(), header.dtype, header.shape};
}

std::optional<View> npy_in_place(const InputFile& file, const std::byte* mapped) {
  FileStream stream(file);
  const NpyHeader header = read_checked_header(stream);
  const std::int64_t size = size_of(header.dtype);
  if ((header.big_endian && size > 1) || stream.position() % static_cast<std::uint64_t>(size) != 0) return std::nullopt;
  const std::byte* data = mapped + stream.position();
  if (!header.fortran_order) return View(data, header.dtype, header.shape);
  return View(data, header.dtype, header.shape, fortran_strides(header.shape));
}

Tensor read_npy(const InputFile& file) {
  FileStream stream(file);
  return read_npy(stream);
}

std::string npy_header(const View& tensor, const Place& place) {
  const auto type = std::find_if(std::begin(npy_types), std::end(npy_types),
                                 [&](const NpyType& t) { return t.dtype == tensor.dtype(); });
  if (type == std::end(npy_types)) {
    fail(ErrorCode::bad_dtype, place, "NumPy has no dtype for {}; convert to f32, or write .safetensors",
         tensor.dtype());
  }
  const Dims& shape = tensor.shape();
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 size_of(type->dtype) == 1 ? '|' : '<', type->code,
                                 fmt::join(shape.begin(), shape.end(), ", "), shape.rank() == 1 ? "," : "");
  // NumPy leaves room for the first size to grow to 21 digits in place, then pads the data's start to 64 bytes (with 64
  // spaces where it is there already).
  if (shape.rank() > 0) text.append(21 - fmt::formatted_size("{}", shape[0]), ' ');
  constexpr std::size_t others = 11;  // magic, version, length; and the line's end
  text.append(64 - (others + text.size()) % 64, ' ');
  text.push_back('\n');
  std::string out = std::string(npy_magic) + std::string("\1\0", 2);
  out.push_back(static_cast<char>(text.size() & 0xff));
  out.push_back(static_cast<char>(text.size() >> 8));
  return out + text;
}

Tensor read_npy(const std::filesystem::path& path) {
  return read_npy(InputFile("read_npy", path, Pipes::read));
}

void write_npy(const std::filesystem::path& path, const View& tensor) {
  const std::string header = npy_header(tensor, {"write_npy"});
  const RowMajor elements(tensor);
  OutputFile file("write_npy", path);
  file.write(header);
  file.write(elements.data(), elements.bytes());
  file.commit();
}

}  // namespace attend::inline v1
