// What the tests of files share: a folder of their own, raw bytes, tensors of known content, and broken copies.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "tests/expect.h"

namespace attend::test {

// A folder that is there as long as the object is.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "attend-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::ptrdiff_t entries() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::filesystem::path path_;
};

inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// 0, 1, 2, ... (bool: modulo 2): what tests/golden/make_files_golden.py writes.
inline Tensor counting(const Dims& shape, DType dtype = DType::f32) {
  Tensor out(shape, DType::f64);
  for (std::int64_t i = 0; i < out.count(); ++i) {
    out.data<double>()[i] = static_cast<double>(dtype == DType::boolean ? i % 2 : i);
  }
  return out.view().to(dtype);
}

inline constexpr DType all_dtypes[] = {DType::f16, DType::f32, DType::f64, DType::bf16,
                                       DType::i64, DType::i8,  DType::u8,  DType::boolean};

// Little-endian.
template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

using Reader = std::function<void(const std::filesystem::path&)>;

// A file in memory, for the tests that read thousands of broken copies.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : descriptor_(memfd_create("attend-test", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create failed");
    put(path(), bytes);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void resize(std::size_t size) const { EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(size)), 0); }
  void set(std::size_t at, char byte) const { EXPECT_EQ(pwrite(descriptor_, &byte, 1, static_cast<off_t>(at)), 1); }

 private:
  int descriptor_;
};

// Every beginning of the file is refused.
inline void expect_cut_short(const std::string& bytes, const Reader& read) {
  const MemoryFile file(bytes);
  for (std::size_t size = bytes.size(); size-- > 0;) {
    file.resize(size);
    SCOPED_TRACE(size);
    expect_error(
        ErrorCode::bad_file, [&] { read(file.path()); }, file.path() + "'");
  }
}

// Whatever one byte is changed to, the reader gives a result or an Error, and neither crashes nor asks for much memory.
inline void expect_no_crash(const std::string& bytes, const Reader& read) {
  const MemoryFile file(bytes);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {0x01, 0x10, 0x80, 0xff}) {
      file.set(at, static_cast<char>(bytes[at] ^ change));
      try {
        read(file.path());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_file) << error.what() << " with byte " << at << " ^ " << change;
      }
    }
    file.set(at, bytes[at]);
  }
}

}  // namespace attend::test
