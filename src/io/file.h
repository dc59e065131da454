// Files as bytes: reading at any place, replacing in one step, and errors that name the place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/message.h"

namespace attend::inline v1 {

// Throws bad_file.
template <class... Args>
[[noreturn]] void fail_at(const Place& place, fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorCode::bad_file, place, format, std::forward<Args>(args)...);
}

// 'text' for a message: what a file holds must not move a terminal's cursor, nor fill the screen.
std::string quote(std::string_view text);

// Whether there is one, or a folder, of that name; false where that can't be known.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// Whether a file may be one that can't be sought in (a pipe, a socket): where its caller names that very file. What
// lies in a folder is a regular file: to open a pipe is to wait for who writes to it, and nobody may.
enum class Pipes : std::uint8_t { refused, read };

// A file to read. A pipe is read to its end at once.
class InputFile {
 public:
  // `function` is the public function that messages begin with. Throws bad_file.
  InputFile(std::string_view function, const std::filesystem::path& path, Pipes pipes = Pipes::refused);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  std::uint64_t size() const { return size_; }
  const Place& place() const { return place_; }
  // Throws bad_file unless all `count` bytes are there.
  void read(std::uint64_t offset, void* to, std::uint64_t count) const;
  std::string read(std::uint64_t offset, std::uint64_t count) const;
  // All of it as memory that may be read, until unmap(); null where that can't be had: of a pipe, an empty file, or by
  // the system.
  const void* map() const;
  static void unmap(const void* memory, std::uint64_t size);
  // Throws bad_file where the file's size or time of change is not what it was when it was opened.
  void check_unchanged() const;

 private:
  struct Version {
    std::int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Version&) const = default;
  };
  Version version() const;
  void read_pipe();

  Place place_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  Version opened_;
  std::string content_;  // of a pipe
};

// A file to write: what is written appears at commit() and not before. Without a commit nothing is left behind, also
// where a signal ends the process, if the file system has files without a name (Linux's O_TMPFILE; not NFS). commit()
// holds signals back while the file has a temporary name; a thread of the caller's own may take them.
// - A symbolic link stays, and the file that it names is replaced. An existing file keeps its permission bits, and is
//   not replaced where it may not be written to; a new one has those that the umask leaves.
// - There is nothing to replace in a device, a pipe or one of the process's own descriptors (/dev/stdout, /dev/fd/3):
//   they are written as the bytes come.
class OutputFile {
 public:
  // Named: others may open it where path_for_others() says, on this machine or another. It then has its temporary name
  // from the start.
  enum class Name : std::uint8_t { late, at_once };
  OutputFile(std::string_view function, const std::filesystem::path& path, Name name = Name::late);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* bytes, std::uint64_t count);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Over what was written there. Throws bad_file where that can't be gone back to.
  void write_at(std::uint64_t offset, std::string_view bytes);
  // The bytes from its end to there are zero.
  void grow_to(std::uint64_t size);
  // Where other processes of this user see it: of this machine alone where it has no name yet. Throws bad_file for what
  // is written directly.
  std::string path_for_others() const;
  void commit();

 private:
  void open_temporary(const std::filesystem::path& target, Name name);
  template <class Make>
  int make_name(Make make);

  Place place_;
  int descriptor_ = -1;
  std::filesystem::path target_;     // empty: it is written directly
  std::filesystem::path temporary_;  // the name that the file has until commit(), if any
};

// A file that another process, an OutputFile of which says where, creates and commits: parts of it are written.
class OutputPart {
 public:
  // `place` is the target's, for messages.
  OutputPart(Place place, const std::string& path_for_others);
  OutputPart(const OutputPart&) = delete;
  OutputPart& operator=(const OutputPart&) = delete;
  ~OutputPart();

  // Of all open files of this machine: tells one from another.
  std::pair<std::uint64_t, std::uint64_t> identity() const;
  void write_at(std::uint64_t offset, const void* bytes, std::uint64_t count);
  // Throws bad_file unless the bytes are on the disk.
  void sync();

 private:
  Place place_;
  int descriptor_ = -1;
};

}  // namespace attend::inline v1
