#include "io/read_tensors.h"

#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"

namespace attend::inline v1 {

TensorMap read_tensors(const InputFile& file) {
  if (file.size() == 0) fail_at(file.place(), "is empty");
  const std::string start = file.read(0, std::min<std::uint64_t>(file.size(), 9));
  if (start.starts_with(npy_magic)) {
    TensorMap tensors;
    tensors.emplace("", read_npy(file));
    return tensors;
  }
  // A .safetensors file may have a length that looks like a zip's first bytes; a zip never has a brace there.
  if (start.size() == 9 && start[8] == '{') return read_safetensors(file).tensors;
  if (start.starts_with("PK\3\4") || start.starts_with("PK\5\6")) return read_npz(file);
  fail_at(file.place(), "byte 0: is not an .npy, .npz or .safetensors file: it begins with {}", quote(start));
}

TensorMap read_tensors(const std::filesystem::path& path) {
  return read_tensors(InputFile("read_tensors", path, Pipes::read));
}

}  // namespace attend::inline v1
