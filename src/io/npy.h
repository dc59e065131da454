// The .npy format, for the readers and writers of .npy and .npz.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attend/tensor.h"
#include "io/file.h"
#include "io/mapped_file.h"

namespace attend::inline v1 {

// Bytes that come in order and are as many as size() says: a file's, or those that a zip's member inflates to, which
// are so never held beside the tensor that they become.
class ByteStream {
 public:
  ByteStream(Place place, std::uint64_t size) : place_(std::move(place)), size_(size) {}
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  const Place& place() const { return place_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t position() const { return position_; }
  // Throws bad_file where fewer bytes are left.
  void read(void* to, std::uint64_t count);

 private:
  virtual void fill(void* to, std::uint64_t count) = 0;

  Place place_;
  std::uint64_t size_;
  std::uint64_t position_ = 0;
};

inline constexpr std::string_view npy_magic = "\x93NUMPY";

// One tensor, that takes up all of the stream.
Tensor read_npy(ByteStream& stream);
Tensor read_npy(const InputFile& file);

// The tensor where it lies in a mapped file, row-major and little-endian: what is not is a bad_file.
View view_npy(const InputFile& file, const MappedFile& mapped);

// The same, in Fortran order too, of any dtype: bools are not looked at. None where the numbers can't be read there.
std::optional<View> npy_in_place(const InputFile& file, const std::byte* mapped);

// What comes before the elements, byte for byte as NumPy writes it. `place` is for the error: bad_dtype for bf16.
std::string npy_header(const View& tensor, const Place& place);

}  // namespace attend::inline v1
