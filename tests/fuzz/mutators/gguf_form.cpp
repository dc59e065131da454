#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "attend/quantized.h"
#include "models/gguf/file.h"
#include "tests/fuzz/mutators/mutate.h"

namespace attend::fuzz {

namespace {

// The types of values (github.com/ggml-org/ggml/blob/master/docs/gguf.md).
enum : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array_of, u64, i64, f64, type_count };
constexpr std::size_t size_of_type[type_count] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::uint32_t tensor_types[] = {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30};
constexpr std::size_t longest_text = 300, most_data = 1 << 16;

struct Value {
  std::string key;
  std::uint32_t type = u32, element = u32;  // element: of an array, else the type itself
  std::vector<std::string> elements;        // their bytes, a text's without its length
};

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> sizes;
  std::uint32_t type = 0;
  std::string data;
};

struct Form {
  std::uint32_t version = 3;
  std::vector<Value> values;
  std::vector<Tensor> tensors;
  std::uint64_t alignment = 32;
};

// ---- Reading ----

struct CutShort {};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  Form run() {
    if (take(4) != "GGUF") throw CutShort();
    Form form;
    form.version = number<std::uint32_t>();
    const auto tensors = number<std::uint64_t>(), values = number<std::uint64_t>();
    for (std::uint64_t n = 0; n < values; ++n) form.values.push_back(value());
    std::vector<std::uint64_t> begins;
    for (std::uint64_t n = 0; n < tensors; ++n) form.tensors.push_back(tensor(begins));
    for (const Value& each : form.values)
      if (each.key == "general.alignment" && each.type == u32) std::memcpy(&form.alignment, each.elements[0].data(), 4);
    if (form.alignment == 0 || form.alignment > 4096) form.alignment = 32;
    const std::uint64_t start = (at_ + form.alignment - 1) / form.alignment * form.alignment;
    for (std::size_t n = 0; n < begins.size(); ++n) {
      const std::uint64_t end = n + 1 < begins.size() ? start + begins[n + 1] : bytes_.size();
      if (start + begins[n] <= end && end <= bytes_.size())
        form.tensors[n].data = bytes_.substr(start + begins[n], end - start - begins[n]);
    }
    return form;
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) throw CutShort();
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }

  Value value() {
    Value value{.key = text(), .type = number<std::uint32_t>(), .elements = {}};
    value.element = value.type == array_of ? number<std::uint32_t>() : value.type;
    if (value.element >= type_count || value.element == array_of) throw CutShort();
    const std::uint64_t count = value.type == array_of ? number<std::uint64_t>() : 1;
    for (std::uint64_t n = 0; n < count; ++n)
      value.elements.push_back(value.element == string ? text() : std::string(take(size_of_type[value.element])));
    return value;
  }

  Tensor tensor(std::vector<std::uint64_t>& begins) {
    Tensor tensor{.name = text(), .sizes = {}, .data = {}};
    for (auto rank = number<std::uint32_t>(); rank > 0; --rank) tensor.sizes.push_back(number<std::uint64_t>());
    tensor.type = number<std::uint32_t>();
    begins.push_back(number<std::uint64_t>());
    return tensor;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

// ---- Writing ----

// How many bytes its numbers take; none where they are too many for an input, or the type has blocks of another size.
std::optional<std::uint64_t> data_size(const Tensor& tensor) {
  if (std::ranges::find(tensor_types, tensor.type) == std::end(tensor_types)) return std::nullopt;
  std::uint64_t count = 1;
  for (const std::uint64_t size : tensor.sizes) {
    if (size > most_data) return std::nullopt;
    count *= size;
    if (count > 4 * most_data) return std::nullopt;
  }
  const auto type = static_cast<models::GgufType>(tensor.type);
  if (tensor.type <= 1 || tensor.type == 30) return count * (tensor.type == 0 ? 4 : 2);
  if (const auto blocks = models::quantized(type)) {
    return count / static_cast<std::uint64_t>(block_size(*blocks)) * static_cast<std::uint64_t>(block_bytes(*blocks));
  }
  return std::nullopt;
}

// Its bytes as often as they are needed.
std::string data_of(const Tensor& tensor) {
  const auto size = data_size(tensor);
  if (!size || *size > most_data) return tensor.data;
  std::string data = tensor.data.empty() ? std::string(1, '\0') : tensor.data;
  while (data.size() < *size) data += data;
  return data.substr(0, static_cast<std::size_t>(*size));
}

class Writer {
 public:
  // One of the counts, lengths and offsets is `wrong`, counted as they are written.
  explicit Writer(std::optional<std::size_t> wrong) : wrong_(wrong) {}

  std::string run(const Form& form) {
    bytes_ = "GGUF";
    put(form.version), put_size(form.tensors.size()), put_size(form.values.size());
    for (const Value& each : form.values) put_value(each);
    std::uint64_t begin = 0;
    for (const Tensor& each : form.tensors) {
      put_text(each.name), put(static_cast<std::uint32_t>(each.sizes.size()));
      for (const std::uint64_t size : each.sizes) put(size);
      put(each.type), put_size(begin);
      begin = (begin + data_of(each).size() + form.alignment - 1) / form.alignment * form.alignment;
    }
    for (const Tensor& each : form.tensors) {
      bytes_.resize((bytes_.size() + form.alignment - 1) / form.alignment * form.alignment);
      bytes_ += data_of(each);
    }
    return std::move(bytes_);
  }

 private:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_size(std::uint64_t size) { put(written_++ == wrong_ ? size * 8 + 7 : size); }
  void put_text(std::string_view text) { put_size(text.size()), bytes_ += text; }

  void put_value(const Value& value) {
    put_text(value.key), put(value.type);
    if (value.type == array_of) put(value.element), put_size(value.elements.size());
    for (const std::string& each : value.elements) {
      if (value.element == string) put_size(each.size());
      bytes_ += each;
    }
  }

  std::optional<std::size_t> wrong_;
  std::size_t written_ = 0;
  std::string bytes_;
};

// ---- Changing ----

std::string bytes_of(std::int64_t number, std::uint32_t type) {
  std::string bytes(size_of_type[type], '\0');
  const double real = static_cast<double>(number);
  const auto single = static_cast<float>(real);
  if (type == f64) {
    std::memcpy(bytes.data(), &real, 8);
  } else if (type == f32) {
    std::memcpy(bytes.data(), &single, 4);
  } else {
    std::memcpy(bytes.data(), &number, bytes.size());
  }
  if (type == boolean) bytes[0] &= 1;
  return bytes;
}

std::int64_t whole(const std::string& bytes) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes.data(), std::min<std::size_t>(bytes.size(), 8));
  return number;
}

class Mutation {
 public:
  Mutation(Form& form, Random& random, const MutateBytes& mutate_bytes)
      : form_(form), random_(random), mutate_bytes_(mutate_bytes) {}

  void run() {
    if (!form_.tensors.empty() && one_in(3, random_)) return change_tensors();
    if (!form_.values.empty()) return change_values();
  }

 private:
  template <class T>
  T& any(std::vector<T>& list) {
    return list[below(list.size(), random_)];
  }
  template <class T>
  void erase(std::vector<T>& list) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(below(list.size(), random_)));
  }

  void change_element(Value& value) {
    std::string& element = any(value.elements);
    if (value.element == string) {
      element = one_in(4, random_) ? any(value.elements) : mutate_bytes_(element, longest_text);
    } else if (value.element == f32 || value.element == f64) {
      element = mutate_bytes_(element, element.size());
      element.resize(size_of_type[value.element]);
    } else {
      element = bytes_of(telling_number(whole(element), random_), value.element);
    }
  }

  // Of another type, the same number; texts become their lengths.
  void change_type(Value& value) {
    std::uint32_t type = static_cast<std::uint32_t>(below(type_count, random_));
    if (type == array_of) type = u32;
    for (std::string& each : value.elements) {
      const std::int64_t number = value.element == string ? std::ssize(each) : whole(each);
      each = type == string ? std::to_string(number) : bytes_of(number, type);
    }
    value.element = type;
    if (value.type != array_of) value.type = type;
  }

  void change_length(Value& value) {
    if (one_in(2, random_)) return erase(value.elements);
    const std::string element = any(value.elements);
    for (std::size_t n = one_in(8, random_) ? below(300, random_) : 1; n > 0; --n) value.elements.push_back(element);
  }

  void change_values() {
    const std::size_t kind = below(12, random_);
    Value& value = any(form_.values);
    if (kind == 0) return erase(form_.values);
    if (kind == 1) {
      value.key = any(form_.values).key;
    } else if (kind == 2) {
      value.key = mutate_bytes_(value.key, 80);
    } else if (kind == 3) {
      Value copy = value;
      copy.key = mutate_bytes_(copy.key, 80);
      form_.values.push_back(std::move(copy));
    } else if (value.elements.empty()) {
      value.elements.push_back(value.element == string ? "a" : bytes_of(1, value.element));
    } else if (kind == 4) {
      change_type(value);
    } else if (kind < 7 && value.type == array_of) {
      change_length(value);
    } else {
      change_element(value);
    }
  }

  void copy_tensor(const Tensor& tensor) {
    Tensor copy = tensor;
    copy.name = mutate_bytes_(copy.name, 64);
    form_.tensors.push_back(std::move(copy));
  }

  void change_tensors() {
    Tensor& tensor = any(form_.tensors);
    switch (below(7, random_)) {
      case 0:
        return erase(form_.tensors);
      case 1:
        tensor.type = tensor_types[below(std::size(tensor_types), random_)];
        return;
      case 2:
        tensor.name = one_in(2, random_) ? any(form_.tensors).name : mutate_bytes_(tensor.name, 64);
        return;
      case 3:
        copy_tensor(tensor);
        return;
      case 4:
        if (tensor.sizes.size() < 5) tensor.sizes.push_back(1 + below(4, random_));
        return;
      case 5:
        if (!tensor.sizes.empty()) any(tensor.sizes) = static_cast<std::uint64_t>(telling_number(4, random_));
        return;
      default:
        tensor.data = mutate_bytes_(data_of(tensor), most_data);
    }
  }

  Form& form_;
  Random& random_;
  const MutateBytes& mutate_bytes_;
};

}  // namespace

std::string mutate_gguf(std::string_view bytes, Random& random, const MutateBytes& mutate_bytes) {
  Form form;
  try {
    form = Reader(bytes).run();
  } catch (const CutShort&) {
    return mutate_bytes(std::string(bytes), 2 * bytes.size() + 64);
  }
  for (std::size_t n = 1 + below(3, random); n > 0; --n) Mutation(form, random, mutate_bytes).run();
  const bool breaks = one_in(8, random);
  return Writer(breaks ? std::optional(below(3 + 3 * form.values.size() + 2 * form.tensors.size(), random))
                       : std::nullopt)
      .run(form);
}

}  // namespace attend::fuzz
