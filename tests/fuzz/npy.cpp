// read_npy() of any bytes; what was read is printed, and the same when it is written and read again.
#include "tests/fuzz/input.h"

using namespace attend;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size}), copy;
  Tensor read;
  if (const auto code = fuzz::error_of([&] { read = read_npy(file.path()); })) {
    fuzz::require(code == ErrorCode::bad_file, "a file is refused as bad_file");
    return 0;
  }
  format_tensor(read);
  write_npy(copy.path(), read);
  fuzz::require(fuzz::same(read_npy(copy.path()), read), "what was written is read");
  fuzz::require(fuzz::same(read_tensors(file.path()).at(""), read), "its content says that it is .npy");
  return 0;
}
