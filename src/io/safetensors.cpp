#include "io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/element.h"
#include "core/utf8.h"
#include "io/element_bytes.h"
#include "io/names.h"

namespace attend::inline v1 {

namespace {

using nlohmann::json;

constexpr std::uint64_t prefix_size = 8;               // the header's length
constexpr std::uint64_t longest_header = 100'000'000;  // as the safetensors package demands
constexpr std::string_view metadata_key = "__metadata__";
constexpr std::string_view narrow_type = "I32";  // that no DType is, and that is read as i64

struct FileType {
  std::string_view name;
  DType dtype;
};
// The order in which the package writes: the more alignment a type needs, the sooner it comes.
constexpr FileType file_types[] = {{"I64", DType::i64},   {"F64", DType::f64},     {"F32", DType::f32},
                                   {"BF16", DType::bf16}, {"F16", DType::f16},     {"I8", DType::i8},
                                   {"U8", DType::u8},     {"BOOL", DType::boolean}};

const FileType& file_type(DType dtype) {
  return *std::find_if(std::begin(file_types), std::end(file_types), [&](auto& type) { return type.dtype == dtype; });
}

using Entry = SafetensorsFile::Entry;

// What nlohmann-json says, less the library's own name, the line (a header has one) and the bytes themselves.
std::string json_reason(const json::exception& error) {
  std::string_view text = error.what();
  if (text.find("UTF-8") != std::string_view::npos) return "is not UTF-8";
  constexpr std::string_view before = "syntax error while parsing ";
  const std::size_t start = text.find(before);
  if (start == std::string_view::npos) return "is not JSON";
  text.remove_prefix(start + before.size());
  return fmt::format("is not JSON: {}", text.substr(0, text.find("; last read")));
}

DType parse_dtype(const json& value, const Place& place) {
  constexpr std::string_view known[] = {"I16",         "U16",     "U32",     "U64",         "F4",
                                        "F6_E2M3",     "F6_E3M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2",
                                        "F8_E5M2FNUZ", "F8_E8M0", "C64"};
  if (!value.is_string()) fail_at(place, "dtype is not a string");
  const auto& name = value.get_ref<const std::string&>();
  if (name == narrow_type) return DType::i64;
  const auto type = std::find_if(std::begin(file_types), std::end(file_types), [&](auto& t) { return t.name == name; });
  if (type != std::end(file_types)) return type->dtype;
  const bool is_known = std::find(std::begin(known), std::end(known), name) != std::end(known);
  fail_at(place, "dtype {} is {}; F64, F32, F16, BF16, I64, I32, I8, U8 and BOOL are", quote(name),
          is_known ? "not read" : "unknown, and not read");
}

Dims parse_shape(const json& value, const Place& place) {
  if (!value.is_array()) fail_at(place, "shape is not a list");
  if (value.size() > Dims::max_rank) {
    fail_at(place, "shape has {} dimensions, at most {} are read", value.size(), Dims::max_rank);
  }
  Dims shape;
  for (const json& size : value) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > INT64_MAX) {
      fail_at(place, "shape holds something else than whole numbers from 0 to 2^63 - 1");
    }
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

Entry parse_entry(const std::string& name, const json& value, const Place& place) {
  const bool complete = value.is_object() && value.size() == 3 && value.contains("dtype") && value.contains("shape") &&
                        value.contains("data_offsets");
  if (!complete) fail_at(place, "must be an object with exactly the keys dtype, shape and data_offsets");
  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    fail_at(place, "data_offsets is not a list of two whole numbers");
  }
  const DType dtype = parse_dtype(value["dtype"], place);
  Entry entry{name,
              dtype,
              value["dtype"] == narrow_type,
              parse_shape(value["shape"], place),
              offsets[0].get<std::uint64_t>(),
              offsets[1].get<std::uint64_t>()};
  if (entry.end < entry.begin) fail_at(place, "data_offsets [{},{}] run backwards", entry.begin, entry.end);
  auto bytes = byte_count(entry.dtype, {entry.shape.begin(), entry.shape.end()});
  if (bytes && entry.narrow) *bytes /= 2;
  if (!bytes) fail_at(place, "shape {} of {} has more bytes than 63 bits can count", entry.shape, entry.dtype);
  if (entry.end - entry.begin != *bytes) {
    fail_at(place, "shape {} of {} takes {} bytes, but data_offsets [{},{}] hold {}", entry.shape,
            entry.narrow ? "i32" : fmt::format("{}", entry.dtype), *bytes, entry.begin, entry.end,
            entry.end - entry.begin);
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value, const Place& place) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) fail_at(place, "header: {} is not an object", metadata_key);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail_at(place, "header: {} holds no string under {}", metadata_key, quote(key));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// Reads the header without a tree of it, which would take twenty times its size: a member at a time, so that what is
// wrong ends it before more is paid for. No key comes twice.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(const Place& place, std::vector<Entry>& entries, std::map<std::string, std::string>& metadata)
      : place_(place), entries_(entries), metadata_(metadata) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const bool is_new = open_.empty() ? names_.insert(name).second : !open_.back().contains(name);
    if (!is_new) fail_at(place_, "header: key {} comes twice", quote(name));
    keys_.resize(open_.size() + 1);
    keys_.back() = name;
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    if (error.id == out_of_range) fail_at(place_, "header: a number is out of range");
    fail_at(place_, "byte {}: header {}", prefix_size + std::max<std::size_t>(byte, 1) - 1, json_reason(error));
  }

 private:
  static constexpr int out_of_range = 406;           // nlohmann-json's: a number that no double holds
  static constexpr std::size_t deepest = 3;          // a member, its shape, and what does not belong there
  static constexpr std::size_t longest_list = 1024;  // so long a shape is refused with its length

  bool open(json container) {
    if (!began_) return began_ = true;  // the header itself
    if (open_.size() == deepest) {
      fail_at(place_, "header: lists or objects lie deeper in each other than the format has them");
    }
    open_.push_back(std::move(container));
    return true;
  }

  bool close() {
    if (open_.empty()) return true;
    json value = std::move(open_.back());
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(json value) {
    if (open_.empty()) {
      finish(keys_.front(), value);
    } else if (open_.back().is_array()) {
      if (open_.back().size() == longest_list) {
        fail_at(place_, "header: {} holds a list of more than {} numbers", quote(keys_.front()), longest_list);
      }
      open_.back().push_back(std::move(value));
    } else {
      open_.back().emplace(keys_[open_.size()], std::move(value));
    }
    return true;
  }

  void finish(const std::string& name, const json& value) {
    if (name == metadata_key) {
      metadata_ = parse_metadata(value, place_);
    } else {
      entries_.push_back(parse_entry(name, value, place_.in("tensor " + quote(name))));
    }
  }

  const Place& place_;
  std::vector<Entry>& entries_;
  std::map<std::string, std::string>& metadata_;
  bool began_ = false;
  std::set<std::string> names_;    // of the header's members
  std::vector<std::string> keys_;  // of the member, and in it
  std::vector<json> open_;         // the member that is read, and its list
};

struct SafetensorsHeader {
  std::string text;        // JSON, without the spaces that fill it up
  std::uint64_t data = 0;  // where it ends and the tensors' data begins
};

SafetensorsHeader read_header(const InputFile& file) {
  const Place& place = file.place();
  if (file.size() == 0) fail_at(place, "is empty");
  std::uint64_t length = 0;
  file.read(0, &length, prefix_size);
  if (length > longest_header) {
    fail_at(place, "byte 0: a header of {} bytes; at most {} are read", length, longest_header);
  }
  if (length > file.size() - prefix_size) {
    fail_at(place, "byte 0: a header of {} bytes, but {} follow: cut short, or not a .safetensors file", length,
            file.size() - prefix_size);
  }
  std::string text = file.read(prefix_size, length);
  if (!text.starts_with('{')) fail_at(place, "byte {}: the header does not begin with '{{'", prefix_size);
  const std::size_t end = text.find_last_not_of(' ') + 1;
  if (text[end - 1] != '}') fail_at(place, "byte {}: the header does not end with '}}'", prefix_size + end - 1);
  text.resize(end);
  return {std::move(text), prefix_size + length};
}

// Without gaps or overlaps from the buffer's begin to its end. The entries come back in that order.
void check_layout(std::vector<Entry>& entries, std::uint64_t size, const Place& place) {
  std::sort(entries.begin(), entries.end(),
            [](auto& a, auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t next = 0;
  for (const Entry& entry : entries) {
    const auto wrong = [&](std::string_view what) {
      fail_at(place, "tensor {}: data_offsets [{},{}] {} (the data has {} bytes)", quote(entry.name), entry.begin,
              entry.end, what, size);
    };
    if (entry.end > size) wrong("reach beyond the file");
    if (entry.begin < next) wrong(fmt::format("overlap another tensor's, which end at {}", next));
    if (entry.begin > next) wrong(fmt::format("leave a hole from {} on", next));
    next = entry.end;
  }
  if (next != size) fail_at(place, "{} trailing bytes follow the last tensor's data", size - next);
}

// The header of a file in which the tensors' data follows in this order.
std::string make_header(const NamedViews& tensors, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", metadata_key, json(metadata).dump());
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t end = begin + static_cast<std::uint64_t>(tensor.count() * size_of(tensor.dtype()));
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", text.size() > 1 ? "," : "",
                        json(name).dump(), file_type(tensor.dtype()).name, tensor.shape(), begin, end);
    begin = end;
  }
  text.push_back('}');
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const InputFile& file) : file_(file) {
  const SafetensorsHeader header = read_header(file);
  data_ = header.data;
  HeaderReader reader(file.place(), entries_, metadata_);
  json::sax_parse(header.text, &reader);
  check_layout(entries_, file.size() - header.data, file.place());
  for (std::size_t at = 0; at < entries_.size(); ++at) places_.emplace(entries_[at].name, at);
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &entries_[found->second];
}

Tensor SafetensorsFile::read(const Entry& entry, std::int64_t first, const Dims& shape) const {
  Tensor tensor = Tensor::uninitialized(shape, entry.dtype);
  if (entry.narrow) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(tensor.count()));
    file_.read(begin(entry) + static_cast<std::uint64_t>(first) * sizeof(std::int32_t), numbers.data(),
               numbers.size() * sizeof(std::int32_t));
    std::ranges::copy(numbers, tensor.data<std::int64_t>());
    return tensor;
  }
  const std::int64_t size = size_of(entry.dtype);
  const std::uint64_t start = begin(entry) + static_cast<std::uint64_t>(first * size);
  file_.read(start, tensor.raw(), static_cast<std::uint64_t>(tensor.count() * size));
  require_booleans(tensor, file_.place().in("tensor " + quote(entry.name)), start);
  return tensor;
}

Safetensors read_safetensors(const InputFile& file) {
  const SafetensorsFile open(file);
  Safetensors out{{}, open.metadata()};
  for (const Entry& entry : open.entries()) out.tensors.emplace(entry.name, open.read(entry));
  return out;
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  return read_safetensors(InputFile("read_safetensors", path, Pipes::read));
}

SafetensorsHead safetensors_head(std::string_view function, const NamedViews& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  check_names(function, tensors);
  NamedViews ordered = tensors;
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    const auto rank = [](const View& view) { return &file_type(view.dtype()) - file_types; };
    return std::pair(rank(a.second), a.first) < std::pair(rank(b.second), b.first);
  });
  for (const auto& [name, tensor] : ordered) {
    if (name == metadata_key) fail(ErrorCode::bad_value, function, "no tensor can have the name {}", metadata_key);
  }
  for (const auto& [key, text] : metadata) {
    decode_utf8(key, {std::string(function), "a key of metadata"});
    decode_utf8(text, {std::string(function), "metadata " + quote(key)});
  }
  const std::string header = make_header(ordered, metadata);
  if (header.size() > longest_header) {
    fail(ErrorCode::bad_value, function, "names, shapes and metadata take {} bytes, at most {} are possible",
         header.size(), longest_header);
  }
  char length[prefix_size];
  store(length, std::uint64_t{header.size()});
  return {std::string(length, prefix_size) + header, std::move(ordered)};
}

std::string safetensors_bytes(std::string_view function, const NamedViews& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const SafetensorsHead parts = safetensors_head(function, tensors, metadata);
  std::size_t size = parts.bytes.size();
  for (const auto& [name, tensor] : parts.tensors)
    size += static_cast<std::size_t>(tensor.count() * size_of(tensor.dtype()));
  std::string bytes = parts.bytes;
  bytes.reserve(size);
  for (const auto& [name, tensor] : parts.tensors) {
    const RowMajor elements(tensor);
    bytes.append(static_cast<const char*>(elements.data()), static_cast<std::size_t>(elements.bytes()));
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const NamedViews& tensors,
                       const std::map<std::string, std::string>& metadata) {
  constexpr const char* function = "write_safetensors";
  const SafetensorsHead parts = safetensors_head(function, tensors, metadata);
  OutputFile file(function, path);
  file.write(parts.bytes);
  for (const auto& [name, tensor] : parts.tensors) {
    const RowMajor elements(tensor);
    file.write(elements.data(), elements.bytes());
  }
  file.commit();
}

}  // namespace attend::inline v1
