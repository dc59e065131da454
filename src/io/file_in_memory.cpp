// io/file.h where there is no file system: files are bytes in memory, which the page has put there.
#include "io/file_in_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "core/tensor_memory.h"
#include "io/file.h"

namespace attend::inline v1 {

namespace {

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
struct File {
  std::unique_ptr<std::byte, Free> bytes;
  std::uint64_t size = 0;
};

std::vector<File>& files() {
  static std::vector<File> all;
  return all;
}
// Of each name, its place in files().
std::map<std::string, int, std::less<>>& names() {
  static std::map<std::string, int, std::less<>> all;
  return all;
}

}  // namespace

std::byte* make_file_in_memory(const std::string& name, std::uint64_t size) {
  constexpr std::uint64_t most = SIZE_MAX - tensor_alignment;
  if (size > most) return nullptr;
  const auto room = (static_cast<std::size_t>(size) / tensor_alignment + 1) * tensor_alignment;
  File file{std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(std::aligned_alloc(tensor_alignment, room))),
            size};
  if (!file.bytes) return nullptr;
  std::byte* bytes = file.bytes.get();
  const auto [found, is_new] = names().try_emplace(name, static_cast<int>(files().size()));
  if (is_new) {
    files().push_back(std::move(file));
  } else {
    files()[static_cast<std::size_t>(found->second)] = std::move(file);
  }
  return bytes;
}

// Its place stays: others have theirs behind it.
void drop_file_in_memory(const std::string& name) {
  const auto found = names().find(name);
  if (found == names().end()) return;
  files()[static_cast<std::size_t>(found->second)] = {};
  names().erase(found);
}

void drop_files_in_memory() {
  names().clear();
  files().clear();
}

bool is_there(const std::filesystem::path& path) {
  return names().contains(path.native()) || is_folder(path);
}

bool is_folder(const std::filesystem::path& path) {
  const std::string inside = path.native() + (path.native().ends_with('/') ? "" : "/");
  const auto next = names().lower_bound(inside);
  return next != names().end() && next->first.starts_with(inside);
}

InputFile::InputFile(std::string_view function, const std::filesystem::path& path, Pipes)
    : place_{std::string(function), quote(path.native())} {
  const auto found = names().find(path.native());
  if (found == names().end()) fail_at(place_, "is not among the files that were given");
  descriptor_ = found->second;
  size_ = files()[static_cast<std::size_t>(descriptor_)].size;
}

InputFile::~InputFile() = default;

void InputFile::read(std::uint64_t offset, void* to, std::uint64_t count) const {
  if (offset > size_ || count > size_ - offset)
    fail_at(place_, "byte {}: {} more bytes were expected, but the file ends at byte {}", offset, count, size_);
  if (count > 0)
    std::memcpy(to, files()[static_cast<std::size_t>(descriptor_)].bytes.get() + offset,
                static_cast<std::size_t>(count));
}

std::string InputFile::read(std::uint64_t offset, std::uint64_t count) const {
  std::string out(static_cast<std::size_t>(std::min(count, size_)), '\0');  // a lying count fails below
  read(offset, out.data(), count);
  return out;
}

const void* InputFile::map() const {
  return size_ > 0 ? files()[static_cast<std::size_t>(descriptor_)].bytes.get() : nullptr;
}

void InputFile::unmap(const void*, std::uint64_t) {}

void InputFile::check_unchanged() const {}

}  // namespace attend::inline v1
