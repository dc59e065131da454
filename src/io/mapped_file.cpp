#include "io/mapped_file.h"

namespace attend::inline v1 {

MappedFile::MappedFile(const InputFile& file) : size_(file.size()) {
  data_ = static_cast<const std::byte*>(file.map());
  if (data_ != nullptr) return;
  copy_ = Tensor::uninitialized({static_cast<std::int64_t>(size_)}, DType::u8);
  file.read(0, copy_.raw(), size_);
  data_ = static_cast<const std::byte*>(copy_.raw());
}

MappedFile::~MappedFile() {
  if (is_mapped()) InputFile::unmap(data_, size_);
}

}  // namespace attend::inline v1
