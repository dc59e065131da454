// The zip container, as far as .npz needs it: members stored or deflated, zip64, one disk, no encryption.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/npy.h"

namespace attend::inline v1 {

namespace zip {
// From here on a number stands in a zip64 field, and all ones in its own.
inline constexpr std::uint64_t maxed32 = 0xffffffff;
inline constexpr std::uint64_t maxed16 = 0xffff;
// The member's name is UTF-8.
inline constexpr std::uint16_t flag_utf8 = 1 << 11;
}  // namespace zip

struct ZipMember {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t compressed = 0;  // bytes in the file
  std::uint64_t size = 0;        // bytes of the content
  std::uint64_t header = 0;      // where the local header begins
  std::uint64_t data = 0;        // where the bytes begin
};

// The members in the directory's order. Every claim that can be checked without reading the members has been: names
// differ, nothing overlaps or lies outside the file, and each local header agrees with the directory.
std::vector<ZipMember> read_zip_directory(const InputFile& file);

// The member's content; reading it throws bad_file where size or checksum turn out to be lies.
class ZipMemberStream : public ByteStream {
 public:
  ZipMemberStream(const InputFile& file, const ZipMember& member, Place place);
  ~ZipMemberStream() override;
  // Call once all is read: throws unless nothing is left and the checksum is right.
  void finish();

 private:
  struct Inflater;
  void fill(void* to, std::uint64_t count) override;
  void fill_deflated(void* to, std::uint64_t count);
  std::uint64_t inflate_some(void* to, std::uint64_t count);

  const InputFile& file_;
  const ZipMember& member_;
  std::unique_ptr<Inflater> inflater_;  // none: stored
  std::uint32_t crc_ = 0;
};

// Writes members stored, all dated 1980-01-01, so that the same tensors give the same bytes.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  // The content is `head` followed by `count` bytes at `body`.
  void add(const std::string& name, std::string_view head, const void* body, std::uint64_t count);
  void finish();

 private:
  void write(std::string_view bytes);

  OutputFile& file_;
  std::uint64_t position_ = 0;
  std::vector<ZipMember> members_;
};

// The records of a member, with a zip64 field only where a number needs it.
std::string zip_local_header(const ZipMember& member);
std::string zip_directory_entry(const ZipMember& member);
std::string zip_directory_end(std::uint64_t members, std::uint64_t start, std::uint64_t size);

}  // namespace attend::inline v1
