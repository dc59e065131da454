#include <zlib.h>

#include <algorithm>
#include <initializer_list>

#include "core/element.h"
#include "io/zip.h"

namespace attend::inline v1 {

namespace {

constexpr std::uint16_t version_plain = 20;
constexpr std::uint16_t version_zip64 = 45;
constexpr std::uint16_t made_by_unix = 3 << 8;
constexpr std::uint16_t first_day = 1 << 5 | 1;                     // 1980-01-01
constexpr std::uint32_t read_write = std::uint32_t{0100600} << 16;  // a regular file, as Python's zipfile says

template <class T>
void put(std::string& out, std::uint64_t value) {
  char bytes[sizeof(T)];
  store(bytes, static_cast<T>(value));
  out.append(bytes, sizeof bytes);
}

std::uint64_t capped(std::uint64_t value) {
  return std::min(value, zip::maxed32);
}

// The zip64 field for those of the numbers that need it; empty where none does.
std::string zip64_extra(std::initializer_list<std::uint64_t> numbers) {
  std::string wide;
  for (const std::uint64_t number : numbers) {
    if (number >= zip::maxed32) put<std::uint64_t>(wide, number);
  }
  if (wide.empty()) return wide;
  std::string out;
  put<std::uint16_t>(out, 1);
  put<std::uint16_t>(out, wide.size());
  return out + wide;
}

// What the local header and the directory's entry have in common, from the version needed to the extra field's length.
std::string common_fields(const ZipMember& member, const std::string& extra) {
  std::string out;
  put<std::uint16_t>(out, extra.empty() ? version_plain : version_zip64);
  put<std::uint16_t>(out, member.flags);
  put<std::uint16_t>(out, member.method);
  put<std::uint16_t>(out, 0);
  put<std::uint16_t>(out, first_day);
  put<std::uint32_t>(out, member.crc);
  put<std::uint32_t>(out, capped(member.compressed));
  put<std::uint32_t>(out, capped(member.size));
  put<std::uint16_t>(out, member.name.size());
  put<std::uint16_t>(out, extra.size());
  return out;
}

}  // namespace

std::string zip_local_header(const ZipMember& member) {
  // Stored: both numbers are equal, so that either both are here, as the format demands, or none.
  const std::string extra = zip64_extra({member.size, member.compressed});
  return "PK\3\4" + common_fields(member, extra) + member.name + extra;
}

std::string zip_directory_entry(const ZipMember& member) {
  const std::string extra = zip64_extra({member.size, member.compressed, member.header});
  std::string out = "PK\1\2";
  put<std::uint16_t>(out, made_by_unix | (extra.empty() ? version_plain : version_zip64));
  out += common_fields(member, extra);
  put<std::uint16_t>(out, 0);  // no comment
  put<std::uint16_t>(out, 0);  // the first disk
  put<std::uint16_t>(out, 0);  // binary
  put<std::uint32_t>(out, read_write);
  put<std::uint32_t>(out, capped(member.header));
  return out + member.name + extra;
}

std::string zip_directory_end(std::uint64_t members, std::uint64_t start, std::uint64_t size) {
  std::string out;
  if (members >= zip::maxed16 || start >= zip::maxed32 || size >= zip::maxed32) {
    out += "PK\6\6";
    put<std::uint64_t>(out, 44);  // bytes of this record from here on
    put<std::uint16_t>(out, made_by_unix | version_zip64);
    put<std::uint16_t>(out, version_zip64);
    put<std::uint64_t>(out, 0);  // the first disk
    put<std::uint64_t>(out, members);
    put<std::uint64_t>(out, members);
    put<std::uint64_t>(out, size);
    put<std::uint64_t>(out, start);
    out += "PK\6\7";
    put<std::uint32_t>(out, 0);
    put<std::uint64_t>(out, start + size);
    put<std::uint32_t>(out, 1);  // disks in all
  }
  out += "PK\5\6";
  put<std::uint32_t>(out, 0);
  put<std::uint16_t>(out, std::min(members, zip::maxed16));
  put<std::uint16_t>(out, std::min(members, zip::maxed16));
  put<std::uint32_t>(out, capped(size));
  put<std::uint32_t>(out, capped(start));
  put<std::uint16_t>(out, 0);  // no comment
  return out;
}

void ZipWriter::add(const std::string& name, std::string_view head, const void* body, std::uint64_t count) {
  ZipMember member;
  member.name = name;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) > 0x7f) member.flags = zip::flag_utf8;
  }
  const uLong head_crc = crc32_z(0, reinterpret_cast<const Bytef*>(head.data()), head.size());
  member.crc =
      static_cast<std::uint32_t>(count == 0 ? head_crc : crc32_z(head_crc, static_cast<const Bytef*>(body), count));
  member.size = member.compressed = head.size() + count;
  member.header = position_;
  write(zip_local_header(member));
  write(head);
  file_.write(body, count);
  position_ += count;
  members_.push_back(std::move(member));
}

void ZipWriter::finish() {
  const std::uint64_t start = position_;
  for (const ZipMember& member : members_) write(zip_directory_entry(member));
  write(zip_directory_end(members_.size(), start, position_ - start));
}

void ZipWriter::write(std::string_view bytes) {
  file_.write(bytes);
  position_ += bytes.size();
}

}  // namespace attend::inline v1
