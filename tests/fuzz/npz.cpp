// read_npz() of any bytes; what was read is the same when it is written and read again.
#include <charconv>

#include "tests/fuzz/input.h"

using namespace attend;

namespace {

// Hardly any change keeps a checksum right, and behind a wrong one nothing would be tried: where the reader says that
// one is wrong, the right one takes its place. False where it says something else.
bool mend_checksum(std::string& bytes, std::string_view message) {
  constexpr std::string_view before = "checksum is ", between = ", ";
  const std::size_t at = message.find(before);
  if (at == std::string_view::npos) return false;
  std::uint32_t right = 0, announced = 0;
  const char* digits = message.data() + at + before.size();
  std::from_chars(digits, digits + 8, right, 16);
  std::from_chars(digits + 8 + between.size(), digits + 16 + between.size(), announced, 16);
  const std::string_view old(reinterpret_cast<const char*>(&announced), sizeof announced);
  for (std::size_t place = bytes.find(old); place != std::string::npos; place = bytes.find(old, place + 4))
    std::memcpy(&bytes[place], &right, sizeof right);
  return true;
}

// Nothing where the file is refused.
std::optional<TensorMap> read_mended(std::string& bytes) {
  constexpr int most_members = 8;
  for (int mended = 0; mended <= most_members; ++mended) {
    try {
      const fuzz::MemoryFile file(bytes);
      return read_npz(file.path());
    } catch (const Error& error) {
      fuzz::require(error.code() == ErrorCode::bad_file, "a file is refused as bad_file");
      if (!mend_checksum(bytes, error.what())) break;
    }
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::optional<TensorMap> read = read_mended(bytes);
  if (!read) return 0;
  const fuzz::MemoryFile copy;
  write_npz(copy.path(), views_of(*read));
  fuzz::require(fuzz::same(read_npz(copy.path()), *read), "what was written is read");
  fuzz::require(fuzz::same(read_tensors(copy.path()), *read), "its content says that it is .npz");
  return 0;
}
