#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "attend/io.h"
#include "core/signals_blocked.h"

namespace attend::inline v1 {

namespace {

namespace fs = std::filesystem;

std::string reason() {
  return std::generic_category().message(errno);
}

Place place_of(std::string_view function, const fs::path& path) {
  Place place{std::string(function), quote(path.native())};
  // The system would open what stands before it: another file than the one whose ending was looked at.
  if (path.native().find('\0') != std::string::npos) fail_at(place, "the path has a zero byte");
  return place;
}

// The number of the descriptor that a path such as /dev/fd/3 or, by its links, /dev/stdout stands for. Opening such a
// path anew would start at the file's first byte, and replacing it would part it from the shell's redirection.
std::optional<int> own_descriptor(const fs::path& folder, const std::string& name) {
  const std::string self = fmt::format("/proc/{}/", getpid());
  if (!folder.native().starts_with(self) || folder.filename() != "fd") return std::nullopt;
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// Where the system shows a file that this process has open.
std::string path_of(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

struct Target {
  fs::path path;  // no symbolic link
  std::optional<int> descriptor;
};

Target follow_links(const Place& place, const fs::path& path) {
  constexpr int most_links = 40;  // as many as Linux follows
  fs::path current = path;
  for (int i = 0; i <= most_links; ++i) {
    if (!current.has_filename()) fail_at(place, "names no file");
    std::error_code error;
    const fs::path given = current.has_parent_path() ? current.parent_path() : ".";
    fs::path folder = fs::canonical(given, error);
    if (error == std::errc::permission_denied) {
      folder = given;  // as the working folder may be open beneath one that is closed to this user
    } else if (error) {
      fail_at(place, "its folder can't be opened: {}", error.message());
    }
    Target target{folder / current.filename(), own_descriptor(folder, current.filename())};
    if (target.descriptor || !fs::is_symlink(target.path, error)) return target;
    const fs::path next = fs::read_symlink(target.path, error);
    if (error) fail_at(place, "the link can't be read: {}", error.message());
    current = folder / next;
  }
  fail_at(place, "the path leads through more than {} symbolic links", most_links);
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

InputFile::InputFile(std::string_view function, const fs::path& path, Pipes pipes) : place_(place_of(function, path)) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (pipes == Pipes::refused ? O_NONBLOCK : 0));
  if (descriptor_ < 0) fail_at(place_, "can't be opened: {}", reason());
  try {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) fail_at(place_, "can't be read: {}", reason());
    if (S_ISDIR(status.st_mode)) fail_at(place_, "is a directory");
    if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
      fail_at(place_, "is a device, expected a file{}", pipes == Pipes::read ? " or a pipe" : "");
    }
    if (!S_ISREG(status.st_mode) && pipes == Pipes::refused) fail_at(place_, "is a pipe, expected a file");
    if (S_ISREG(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      opened_ = version();
    } else {
      read_pipe();
    }
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() {
  close(descriptor_);
}

InputFile::Version InputFile::version() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail_at(place_, "can't be read: {}", reason());
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

void InputFile::check_unchanged() const {
  if (content_.empty() && version() != opened_) fail_at(place_, "has changed since it was opened: open it again");
}

void InputFile::read_pipe() {
  char chunk[1 << 16];
  while (true) {
    const ssize_t count = ::read(descriptor_, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_at(place_, "can't be read: {}", reason());
    if (count == 0) break;
    content_.append(chunk, static_cast<std::size_t>(count));
  }
  size_ = content_.size();
}

void InputFile::read(std::uint64_t offset, void* to, std::uint64_t count) const {
  if (offset > size_ || count > size_ - offset) {
    fail_at(place_, "byte {}: {} more bytes were expected, but the file ends at byte {}", offset, count, size_);
  }
  if (!content_.empty()) {
    std::memcpy(to, content_.data() + offset, count);
    return;
  }
  auto* out = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = pread(descriptor_, out, std::min<std::uint64_t>(count, 1 << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_at(place_, "byte {}: can't be read: {}", offset, reason());
    if (got == 0) fail_at(place_, "byte {}: the file was cut short while it was read", offset);
    out += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::uint64_t>(got);
  }
}

std::string InputFile::read(std::uint64_t offset, std::uint64_t count) const {
  std::string out(std::min(count, size_), '\0');  // a lying count fails below, and not for want of memory here
  read(offset, out.data(), count);
  return out;
}

const void* InputFile::map() const {
  void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void InputFile::unmap(const void* memory, std::uint64_t size) {
  munmap(const_cast<void*>(memory), size);
}

OutputFile::OutputFile(std::string_view function, const fs::path& path, Name name) : place_(place_of(function, path)) {
  Target target = follow_links(place_, path);
  struct stat status {};
  if (target.descriptor) {
    descriptor_ = fcntl(*target.descriptor, F_DUPFD_CLOEXEC, 0);
  } else if (stat(target.path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) {
    open_temporary(target.path, name);
  } else if (S_ISDIR(status.st_mode)) {
    fail_at(place_, "is a directory");
  } else {
    descriptor_ = open(target.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  }
  if (descriptor_ < 0) fail_at(place_, "can't be written: {}", reason());
}

void OutputFile::open_temporary(const fs::path& target, Name name) {
  struct stat status {};
  const bool exists = stat(target.c_str(), &status) == 0;
  if (exists && access(target.c_str(), W_OK) != 0) fail_at(place_, "can't be written: {}", reason());
  const mode_t mode = exists ? status.st_mode & 0777 : 0666;
  target_ = target;
  if (name == Name::late) descriptor_ = open(target.parent_path().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
  if (descriptor_ >= 0 && access(path_of(descriptor_).c_str(), F_OK) != 0) {  // no /proc to give it a name by
    close(descriptor_);
    descriptor_ = -1;
  }
  if (descriptor_ < 0) {
    descriptor_ = make_name([&] { return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode); });
  }
  if (descriptor_ < 0) {
    fail_at(place_, "no file can be made in its folder {}: {}", quote(target.parent_path().native()), reason());
  }
  if (exists) fchmod(descriptor_, mode);
}

// make()'s result, once temporary_ is a name of its own in the target's folder, however long the target's: an old run
// may have left the same one behind. Without one where that is below 0.
template <class Make>
int OutputFile::make_name(Make make) {
  static std::atomic<unsigned> counter{0};
  int result = -1;
  do {
    temporary_ = target_.parent_path() / fmt::format(".attend-{}-{}.tmp", getpid(), counter++);
    result = make();
  } while (result < 0 && errno == EEXIST);
  if (result < 0) temporary_.clear();
  return result;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::write(const void* bytes, std::uint64_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::write(descriptor_, from, std::min<std::uint64_t>(count, 1 << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_at(place_, "can't be written: {}", reason());
    from += done;
    count -= static_cast<std::uint64_t>(done);
  }
}

void OutputFile::write_at(std::uint64_t offset, std::string_view bytes) {
  if (lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0)
    fail_at(place_, "can't be read from the beginning again: {}", reason());
  write(bytes);
  if (lseek(descriptor_, 0, SEEK_END) < 0) fail_at(place_, "can't be read from the beginning again: {}", reason());
}

void OutputFile::grow_to(std::uint64_t size) {
  if (ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail_at(place_, "can't be written: {}", reason());
}

std::string OutputFile::path_for_others() const {
  if (target_.empty()) fail_at(place_, "is not a file that several processes can write");
  return temporary_.empty() ? fmt::format("/proc/{}/fd/{}", getpid(), descriptor_) : temporary_.native();
}

void OutputFile::commit() {
  if (target_.empty()) return;
  // The bytes first, then the name: after a power cut the name stands for the old bytes or the new, never for neither.
  if (fsync(descriptor_) != 0) fail_at(place_, "can't be written: {}", reason());
  const auto link = [&] {
    return linkat(AT_FDCWD, path_of(descriptor_).c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW);
  };
  const SignalsBlocked blocked;  // between the two names
  if (temporary_.empty() && make_name(link) != 0) fail_at(place_, "can't be replaced: {}", reason());
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_at(place_, "can't be replaced: {}", reason());
  temporary_.clear(), target_.clear();
}

OutputPart::OutputPart(Place place, const std::string& path_for_others) : place_(std::move(place)) {
  descriptor_ = open(path_for_others.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0)
    fail_at(place_, "{}, which another process has begun, can't be opened: {}", quote(path_for_others), reason());
}

OutputPart::~OutputPart() {
  close(descriptor_);
}

std::pair<std::uint64_t, std::uint64_t> OutputPart::identity() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail_at(place_, "can't be written: {}", reason());
  return {status.st_dev, status.st_ino};
}

void OutputPart::write_at(std::uint64_t offset, const void* bytes, std::uint64_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = pwrite(descriptor_, from, std::min<std::uint64_t>(count, 1 << 30), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_at(place_, "can't be written: {}", reason());
    from += done;
    offset += static_cast<std::uint64_t>(done);
    count -= static_cast<std::uint64_t>(done);
  }
}

void OutputPart::sync() {
  if (fsync(descriptor_) != 0) fail_at(place_, "can't be written: {}", reason());
}

void write_file(const fs::path& path, std::string_view bytes) {
  OutputFile file("write_file", path);
  file.write(bytes);
  file.commit();
}

}  // namespace attend::inline v1
