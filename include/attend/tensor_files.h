// Files of tensors, and tensors as text.
//
//     const attend::TensorMap tensors = attend::read_tensors("weights.safetensors");
//     attend::write_npy("x.npy", tensors.at("x"));
//
// Readers are strict: for a bad file they throw one bad_file that names the file, the place and the fault. Writers
// write a temporary file and rename it, so a failed write loses nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

using TensorMap = std::map<std::string, Tensor, std::less<>>;
// Tensors to write, in this order; views_of() gives the order of the names.
using NamedViews = std::vector<std::pair<std::string, View>>;
ATTEND_API NamedViews views_of(const TensorMap& tensors);

// NumPy's .npy, versions 1.0 to 3.0: f16, f32, f64, i64, u8, bool; little- or big-endian, C or Fortran order. Writing
// bf16, which .npy lacks, throws bad_dtype.
ATTEND_API Tensor read_npy(const std::filesystem::path& path);
ATTEND_API void write_npy(const std::filesystem::path& path, const View& tensor);

// NumPy's .npz: a zip of .npy files, stored or deflated; written stored.
ATTEND_API TensorMap read_npz(const std::filesystem::path& path);
ATTEND_API void write_npz(const std::filesystem::path& path, const NamedViews& tensors);

// Hugging Face's .safetensors: F64, F32, F16, BF16, I64, I8, U8, BOOL, and I32 (read as i64).
struct ATTEND_API Safetensors {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;
};
ATTEND_API Safetensors read_safetensors(const std::filesystem::path& path);
ATTEND_API void write_safetensors(const std::filesystem::path& path, const NamedViews& tensors,
                                  const std::map<std::string, std::string>& metadata = {});

// Any of the three, recognised by content. An .npy file's tensor has the name "".
ATTEND_API TensorMap read_tensors(const std::filesystem::path& path);

// A file's tensors in place: .npy and .safetensors are read only when used, so a file may be larger than memory. Others
// (.npz, big-endian numbers) are read at once.
class ATTEND_API TensorFile {
 public:
  // Throws bad_file, out_of_memory. The file must not be truncated meanwhile: reading missing bytes ends the process.
  explicit TensorFile(const std::filesystem::path& path);
  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&& other) noexcept;
  ~TensorFile();

  // As in read_tensors().
  std::vector<std::string> names() const;
  // The view lives as long as this object. Throws bad_value for an unknown name, bad_file for a bool other than 0 or 1.
  View view(std::string_view name) const;
  // Only that part of the axis is read.
  View view(std::string_view name, int axis, Range part) const;
  // Reads no elements.
  Dims shape(std::string_view name) const;
  DType dtype(std::string_view name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A .npy or .safetensors file (by ending) that several processes write together, on one machine or sharing a folder.
// One creates it and sends place() to the others; each writes its parts; when all have finished, the first commits.
// Only then does the file appear, or replace the old one.
class ATTEND_API SharedTensorFile {
 public:
  struct Entry {
    std::string name;  // unused in .npy, which holds one tensor
    DType dtype = DType::f32;
    Dims shape;
  };

  // The first process. nearby: the others are on this machine. Then, if the file system allows, the file has no name
  // until commit(), and nothing remains if processes die. Otherwise it has a name beside `path`, and remains if this
  // process is killed.
  SharedTensorFile(const std::filesystem::path& path, std::vector<Entry> entries, bool nearby);
  // The other processes, with equal path and entries, and the first one's place(). Throws bad_file if it can't be
  // opened.
  SharedTensorFile(const std::filesystem::path& path, std::vector<Entry> entries, std::string_view place);
  SharedTensorFile(SharedTensorFile&& other) noexcept;
  ~SharedTensorFile();

  std::string place() const;
  // x becomes these runs, one after another, along the axis of the tensor.
  void write(std::string_view name, int axis, std::span<const Range> runs, const View& x);
  // Returns when the data is on disk; else throws.
  void finish();
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Replaces a file's content in one step.
ATTEND_API void write_file(const std::filesystem::path& path, std::string_view bytes);

// The text that PyTorch 2 prints (default options: 4 decimals, 80 columns, long axes summarised).
ATTEND_API std::string format_tensor(const View& tensor);

}  // namespace attend::inline v1
