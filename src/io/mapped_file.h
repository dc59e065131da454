// A file's bytes as memory that the system fills when it is read.
#pragma once

#include <cstddef>

#include "io/file.h"

namespace attend::inline v1 {

// Mapped read-only; a file that can't be (a pipe, an empty one, a system without) is read into memory of its own. The
// file must not be cut short while this is there: reading what is gone ends the process.
class MappedFile {
 public:
  // The file need not stay open. Throws bad_file, out_of_memory.
  explicit MappedFile(const InputFile& file);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // Aligned to 64 bytes at least.
  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  bool is_mapped() const { return copy_.count() == 0 && size_ > 0; }

 private:
  std::uint64_t size_ = 0;
  Tensor copy_;
  const std::byte* data_ = nullptr;
};

}  // namespace attend::inline v1
