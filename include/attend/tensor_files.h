// Files of tensors, and tensors as text.
//
// Every reader is strict: a bad file is one Error (bad_file) that names the file, the place and what is wrong, and
// nothing is half-read. Every writer writes a temporary file beside the target and renames it: a failed write loses
// nothing.
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

namespace attend::inline v0 {

using TensorMap = std::map<std::string, Tensor, std::less<>>;
// Tensors to write, in this order. A TensorMap's own order is that of its names.
using NamedViews = std::vector<std::pair<std::string, View>>;
ATTEND_API NamedViews views_of(const TensorMap& tensors);

// NumPy's .npy, format versions 1.0 to 3.0: f16, f32, f64, i64, u8, bool; little- or big-endian, C or Fortran order.
// bf16 has no .npy type: writing it throws bad_dtype.
ATTEND_API Tensor read_npy(const std::filesystem::path& path);
ATTEND_API void write_npy(const std::filesystem::path& path, const View& tensor);

// NumPy's .npz: a zip of .npy files, stored or deflated; written stored.
ATTEND_API TensorMap read_npz(const std::filesystem::path& path);
ATTEND_API void write_npz(const std::filesystem::path& path, const NamedViews& tensors);

// Hugging Face's .safetensors: F64, F32, F16, BF16, I64, I8, U8, BOOL; and I32, read as i64.
struct ATTEND_API Safetensors {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;
};
ATTEND_API Safetensors read_safetensors(const std::filesystem::path& path);
ATTEND_API void write_safetensors(const std::filesystem::path& path, const NamedViews& tensors,
                                  const std::map<std::string, std::string>& metadata = {});

// Any of the three, told apart by content; the one tensor of an .npy file has the name "".
ATTEND_API TensorMap read_tensors(const std::filesystem::path& path);

// The tensors of a file where they lie: of .npy and .safetensors nothing is read before it is looked at, so that a file
// may be larger than memory. What can't be looked at in place (.npz, big-endian numbers) is read at once.
class ATTEND_API TensorFile {
 public:
  // Throws bad_file, out_of_memory. The file must not be cut short while this is there: reading what is gone ends the
  // process.
  explicit TensorFile(const std::filesystem::path& path);
  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&& other) noexcept;
  ~TensorFile();

  // As in read_tensors().
  std::vector<std::string> names() const;
  // These live as long as this. Throws bad_value for a name that is not there, bad_file where a bool is neither 0
  // nor 1.
  View view(std::string_view name) const;
  // Of an axis that part: nothing else is looked at.
  View view(std::string_view name, int axis, Range part) const;
  // Without looking at any of them.
  Dims shape(std::string_view name) const;
  DType dtype(std::string_view name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A .npy or .safetensors file (by its ending) that several processes write together, on one machine or on many that
// share the folder. One creates it, and sends the others what place() says; each writes its parts; when all have
// finished, the first commits. The file appears then, or replaces what was there, and not before.
class ATTEND_API SharedTensorFile {
 public:
  struct Entry {
    std::string name;  // of no meaning in .npy, which holds one
    DType dtype = DType::f32;
    Dims shape;
  };

  // The first one. `nearby`: the others are on this machine. The file then has no name until commit(), where the file
  // system has such files: nothing of it stays, however the processes end. Else it has one beside `path`, which stays
  // where this process is killed.
  SharedTensorFile(const std::filesystem::path& path, std::vector<Entry> entries, bool nearby);
  // The others, with the same path and entries, and the first one's place(). Throws bad_file where it isn't to be seen.
  SharedTensorFile(const std::filesystem::path& path, std::vector<Entry> entries, std::string_view place);
  SharedTensorFile(SharedTensorFile&& other) noexcept;
  ~SharedTensorFile();

  std::string place() const;
  // x becomes that part of the tensor: of the axis these runs, one after another.
  void write(std::string_view name, int axis, std::span<const Range> runs, const View& x);
  // What was written has reached the disk, or this throws.
  void finish();
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Replaces the file's content in one step.
ATTEND_API void write_file(const std::filesystem::path& path, std::string_view bytes);

// A tensor as PyTorch 2 prints it (print options at their defaults: 4 decimals, 80 columns, long axes summarised).
ATTEND_API std::string format_tensor(const View& tensor);

}  // namespace attend::inline v0
