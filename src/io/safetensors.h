// Reading .safetensors from a file that is open already, whole or a tensor at a time.
#pragma once

#include <optional>

#include "attend/io.h"
#include "io/file.h"

namespace attend::inline v1 {

Safetensors read_safetensors(const InputFile& file);

// What write_safetensors() writes, as bytes. Throws as it does, as `function`.
std::string safetensors_bytes(std::string_view function, const NamedViews& tensors,
                              const std::map<std::string, std::string>& metadata);

// What write_safetensors() writes before the tensors' data, which follows in this order. Of the views nothing but
// names, dtypes and shapes is looked at.
struct SafetensorsHead {
  std::string bytes;
  NamedViews tensors;
};
SafetensorsHead safetensors_head(std::string_view function, const NamedViews& tensors,
                                 const std::map<std::string, std::string>& metadata);

// The header is read and checked at once; a tensor when it is asked for.
class SafetensorsFile {
 public:
  // Throws bad_file.
  explicit SafetensorsFile(const InputFile& file);

  struct Entry {
    std::string name;
    DType dtype = DType::f32;  // that it is read as
    bool narrow = false;       // I32 in the file, whose numbers i64 holds
    Dims shape;
    std::uint64_t begin = 0, end = 0;  // bytes of the data
  };
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<Entry>& entries() const { return entries_; }  // in the file's order
  const Entry* find(std::string_view name) const;
  // The byte of the file at which its data begins.
  std::uint64_t begin(const Entry& entry) const { return data_ + entry.begin; }
  // Throws bad_file for what can't be read.
  Tensor read(const Entry& entry) const { return read(entry, 0, entry.shape); }
  // As many of its elements as the shape has, from the `first` on.
  Tensor read(const Entry& entry, std::int64_t first, const Dims& shape) const;

 private:
  const InputFile& file_;
  std::uint64_t data_ = 0;  // where it begins
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> places_;  // of the names in entries_
  std::map<std::string, std::string> metadata_;
};

}  // namespace attend::inline v1
