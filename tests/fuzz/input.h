// What the fuzzed functions share: an input's bytes as choices, as a file in memory, and what must hold of every call.
//
// Each other file here defines LLVMFuzzerTestOneInput for libFuzzer, which is named after it (fuzz_npy, ...); so does
// attend_tests have it, where replay_test.cpp calls it with the files of corpus/.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "attend/attend.h"

// Its signature is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attend::fuzz {

// An exception that nothing catches: libFuzzer keeps the input, and a replayed test fails.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// The code of the Error that the call throws, if any. Nothing else may be thrown.
template <class Call>
std::optional<ErrorCode> error_of(Call call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error.code();
  }
}

// A text's tokens, which lie inside of it; none where it is refused, as bad_value.
inline std::optional<Encoding> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::optional<Encoding> found;
  if (const auto code = error_of([&] { found = tokenizer.encode(text); })) {
    require(code == ErrorCode::bad_value, "a text is refused as bad_value");
    return std::nullopt;
  }
  for (const Range& bytes : found->offsets)
    require(bytes.begin >= 0 && bytes.begin <= bytes.end && bytes.end <= std::ssize(text),
            "a token is inside the text");
  return found;
}

// Choices, from an input's bytes; all zero behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const char first = left_.front();
    left_.remove_prefix(1);
    return static_cast<std::uint8_t>(first);
  }
  bool flag() { return byte() % 2 == 1; }
  bool one_in(int count) { return byte() % count == 1; }
  // A range of at most 256 numbers.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + byte() % (high - low + 1); }
  std::uint64_t bits() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  template <class T, std::size_t count>
  const T& one_of(const T (&list)[count]) {
    return list[byte() % count];
  }
  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

// A file that only this process sees; the library reads it as any other, and writes it in place.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("attend-fuzz", MFD_CLOEXEC)) { require(descriptor_ >= 0, "memfd_create"); }
  explicit MemoryFile(std::string_view bytes) : MemoryFile() {
    require(write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// A folder that is there until the object ends.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "attend-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "mkdtemp");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  // The path of a file with these bytes.
  std::filesystem::path put(const char* name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Shape, dtype and every bit.
inline bool same(const View& a, const View& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = a.clone(), y = b.clone();
  return x.count() == 0 || std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.count() * size_of(x.dtype()))) == 0;
}

inline bool same(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !same(tensor, other->second)) return false;
  }
  return true;
}

}  // namespace attend::fuzz
