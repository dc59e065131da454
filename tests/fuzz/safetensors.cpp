// read_safetensors() of any bytes; what was read is the same when it is written and read again.
#include "tests/fuzz/input.h"

using namespace attend;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size}), copy;
  Safetensors read;
  if (const auto code = fuzz::error_of([&] { read = read_safetensors(file.path()); })) {
    fuzz::require(code == ErrorCode::bad_file, "a file is refused as bad_file");
    return 0;
  }
  write_safetensors(copy.path(), views_of(read.tensors), read.metadata);
  const Safetensors again = read_safetensors(copy.path());
  fuzz::require(again.metadata == read.metadata && fuzz::same(again.tensors, read.tensors), "what was written is read");
  fuzz::require(fuzz::same(read_tensors(file.path()), read.tensors), "its content says that it is .safetensors");
  return 0;
}
