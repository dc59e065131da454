#include <zlib.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "core/element.h"
#include "core/utf8.h"
#include "io/zip.h"

namespace attend::inline v1 {

namespace {

constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::uint32_t entry_signature = 0x02014b50;
constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator_signature = 0x07064b50;

constexpr std::uint64_t end_size = 22;
constexpr std::uint64_t end64_size = 56;
constexpr std::uint64_t locator_size = 20;
constexpr std::uint64_t local_size = 30;

constexpr std::uint16_t flag_descriptor = 1 << 3;
constexpr std::uint16_t flags_encrypted = 1 << 0 | 1 << 6 | 1 << 13;
constexpr std::uint16_t flag_patch = 1 << 5;

constexpr std::uint16_t stored = 0;
constexpr std::uint16_t deflated = 8;
// No deflate stream gives more: a byte of it may stand for two matches of 258 bytes, less the blocks' own cost.
constexpr std::uint64_t most_inflated = 1032;

// Little-endian numbers one after another.
class Fields {
 public:
  Fields(std::string_view bytes, const Place& place, std::uint64_t start)
      : bytes_(bytes), place_(place), start_(start) {}

  bool empty() const { return at_ == bytes_.size(); }
  std::uint64_t position() const { return start_ + at_; }
  template <class T>
  T take() {
    return load<T>(take(sizeof(T)).data());
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail_at(place_, "byte {}: a zip record is cut short", position());
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  void signature(std::uint32_t wanted, std::string_view what) {
    const std::uint64_t at = position();
    if (take<std::uint32_t>() != wanted) fail_at(place_, "byte {}: no {} of a zip begins here", at, what);
  }

 private:
  std::string_view bytes_;
  const Place& place_;
  std::uint64_t start_;
  std::uint64_t at_ = 0;
};

// Where the directory lies.
struct Directory {
  std::uint64_t count = 0;
  std::uint64_t start = 0;
  std::uint64_t size = 0;
};

// The end record is the last thing in the file but for a comment, whose length it holds.
std::uint64_t find_end(const InputFile& file) {
  const Place& place = file.place();
  if (file.size() < end_size) fail_at(place, "{} bytes are too few for a zip: cut short", file.size());
  const std::uint64_t start = file.size() - std::min<std::uint64_t>(file.size(), end_size + zip::maxed16);
  const std::string tail = file.read(start, file.size() - start);
  for (std::uint64_t at = tail.size() - end_size + 1; at-- > 0;) {
    if (load<std::uint32_t>(&tail[at]) == end_signature &&
        at + end_size + load<std::uint16_t>(&tail[at + 20]) == tail.size()) {
      return start + at;
    }
  }
  fail_at(place, "byte {}: no directory of a zip ends here: cut short, or not an .npz file", file.size());
}

// Where the zip64 end record stands; 0 where there is none.
std::uint64_t find_end64(const InputFile& file, std::uint64_t end) {
  if (end < locator_size + end64_size) return 0;
  const std::uint64_t start = end - locator_size;
  const std::string bytes = file.read(start, locator_size);
  if (load<std::uint32_t>(bytes.data()) != locator_signature) return 0;
  const auto at = load<std::uint64_t>(&bytes[8]);
  if (load<std::uint32_t>(&bytes[4]) != 0 || load<std::uint32_t>(&bytes[16]) > 1) {
    fail_at(file.place(), "byte {}: a zip of several disks is not read", start);
  }
  if (at == 0 || at > start - end64_size) {
    fail_at(file.place(), "byte {}: the zip64 record is said to lie at byte {}, outside of its place", start, at);
  }
  return at;
}

void apply_end64(const InputFile& file, std::uint64_t at, std::uint64_t end, Directory& directory) {
  const std::string bytes = file.read(at, end64_size);
  Fields fields(bytes, file.place(), at);
  fields.signature(end64_signature, "zip64 end record");
  const auto rest = fields.take<std::uint64_t>();
  if (rest != end - locator_size - at - 12) {
    fail_at(file.place(), "byte {}: the zip64 record claims {} bytes, and has {}", at, rest,
            end - locator_size - at - 12);
  }
  fields.take(4);
  const auto disks = fields.take<std::uint64_t>();
  const auto here = fields.take<std::uint64_t>();
  const auto count = fields.take<std::uint64_t>();
  if (disks != 0 || here != count) fail_at(file.place(), "byte {}: a zip of several disks is not read", at);
  if (directory.count == zip::maxed16) directory.count = count;
  const auto size = fields.take<std::uint64_t>();
  if (directory.size == zip::maxed32) directory.size = size;
  const auto start = fields.take<std::uint64_t>();
  if (directory.start == zip::maxed32) directory.start = start;
  if (directory.count != count || directory.size != size || directory.start != start) {
    fail_at(file.place(), "byte {}: the zip64 record contradicts the end record", at);
  }
}

Directory find_directory(const InputFile& file) {
  const std::uint64_t end = find_end(file);
  const std::string bytes = file.read(end, end_size);
  Fields fields(bytes, file.place(), end + 4);
  fields.take(4);
  const auto disks = fields.take<std::uint32_t>();
  const auto here = fields.take<std::uint16_t>();
  Directory directory;
  directory.count = fields.take<std::uint16_t>();
  directory.size = fields.take<std::uint32_t>();
  directory.start = fields.take<std::uint32_t>();
  if (disks != 0 || here != directory.count) {
    fail_at(file.place(), "byte {}: a zip of several disks is not read", end);
  }
  const std::uint64_t end64 = find_end64(file, end);
  if (end64 != 0) apply_end64(file, end64, end, directory);
  const std::uint64_t stop = end64 != 0 ? end64 : end;
  if (directory.start > stop || directory.size != stop - directory.start) {
    fail_at(file.place(), "byte {}: the directory is said to be bytes {} to {}+{}, but must end at byte {}", end,
            directory.start, directory.start, directory.size, stop);
  }
  return directory;
}

// A number that does not fit its 32 bits there stands in the zip64 extra field, in this order.
void apply_zip64(std::string_view extra, std::initializer_list<std::uint64_t*> numbers, const Place& place,
                 std::uint64_t start) {
  Fields fields(extra, place, start);
  std::string_view zip64;
  while (extra.size() - (fields.position() - start) >= 4) {
    const auto id = fields.take<std::uint16_t>();
    const std::string_view content = fields.take(fields.take<std::uint16_t>());
    if (id == 1) zip64 = content;
  }
  Fields wide(zip64, place, start);
  for (std::uint64_t* number : numbers) {
    if (*number == zip::maxed32) *number = wide.take<std::uint64_t>();
  }
}

void check_name(const ZipMember& member, const Place& place, std::uint64_t at) {
  const std::string_view name = member.name;
  if (name.find('\0') != std::string_view::npos) fail_at(place, "byte {}: a member's name has a zero byte", at);
  if ((member.flags & zip::flag_utf8) == 0) {
    if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) > 0x7f; })) {
      fail_at(place, "byte {}: member {} has a name beyond ASCII that is not marked as UTF-8", at, quote(name));
    }
    return;
  }
  try {
    decode_utf8(name, {"", "the name"});
  } catch (const Error&) {
    fail_at(place, "byte {}: member {} has a name that is not UTF-8", at, quote(name));
  }
}

void check_method(const ZipMember& member, const Place& place, std::uint64_t at) {
  const auto refuse = [&](std::string_view what) {
    fail_at(place, "byte {}: member {} {}", at, quote(member.name), what);
  };
  if (member.flags & flags_encrypted) refuse("is encrypted, which is not read");
  if (member.flags & flag_patch) refuse("holds patch data, which is not read");
  if (member.method != stored && member.method != deflated) {
    refuse(fmt::format("has compression method {}; 0 (stored) and 8 (deflated) are read", member.method));
  }
  if (member.method == stored && member.size != member.compressed) {
    refuse(fmt::format("is stored, but claims {} bytes of content in {}", member.size, member.compressed));
  }
  if (member.method == deflated && member.size / most_inflated > member.compressed) {
    refuse(fmt::format("claims {} bytes of content, more than {} deflated bytes can hold", member.size,
                       member.compressed));
  }
}

// What the directory and a local header both say of a member, and how long its name and its extra field are.
std::pair<std::uint16_t, std::uint16_t> take_common(Fields& fields, ZipMember& member) {
  member.flags = fields.take<std::uint16_t>();
  member.method = fields.take<std::uint16_t>();
  fields.take(4);
  member.crc = fields.take<std::uint32_t>();
  member.compressed = fields.take<std::uint32_t>();
  member.size = fields.take<std::uint32_t>();
  const auto name_size = fields.take<std::uint16_t>();
  return {name_size, fields.take<std::uint16_t>()};
}

ZipMember read_entry(Fields& fields, const Place& place) {
  const std::uint64_t at = fields.position();
  ZipMember member;
  fields.signature(entry_signature, "directory entry");
  fields.take(4);
  const auto [name_size, extra_size] = take_common(fields, member);
  const auto comment_size = fields.take<std::uint16_t>();
  const auto disk = fields.take<std::uint16_t>();
  fields.take(6);
  member.header = fields.take<std::uint32_t>();
  member.name = fields.take(name_size);
  const std::uint64_t extra_at = fields.position();
  apply_zip64(fields.take(extra_size), {&member.size, &member.compressed, &member.header}, place, extra_at);
  fields.take(comment_size);
  if (disk != 0 && disk != zip::maxed16) fail_at(place, "byte {}: a zip of several disks is not read", at);
  check_name(member, place, at);
  check_method(member, place, at);
  return member;
}

// Reads the local header: finds where the data begins, and compares the rest with the directory.
void locate_data(const InputFile& file, const Directory& directory, ZipMember& member) {
  const Place place = file.place().in("member " + quote(member.name));
  if (member.header > directory.start || directory.start - member.header < local_size) {
    fail_at(place, "is said to begin at byte {}, and the directory begins at {}", member.header, directory.start);
  }
  const std::string fixed = file.read(member.header, local_size);
  Fields fields(fixed, place, member.header);
  ZipMember local;
  fields.signature(local_signature, "member");
  fields.take(2);
  const auto [name_size, extra_size] = take_common(fields, local);
  member.data = member.header + local_size + name_size + extra_size;
  if (member.data > directory.start || member.compressed > directory.start - member.data) {
    fail_at(place, "byte {}: its {} bytes reach beyond the directory's begin at byte {}", member.data,
            member.compressed, directory.start);
  }
  local.name = file.read(member.header + local_size, name_size);
  const std::string extra = file.read(member.data - extra_size, extra_size);
  apply_zip64(extra, {&local.size, &local.compressed}, place, member.data - extra_size);
  // With a data descriptor the sizes were not yet known where the header was written.
  const bool same_sizes =
      (local.flags & flag_descriptor) != 0 ||
      (local.size == member.size && local.compressed == member.compressed && local.crc == member.crc);
  if (local.name != member.name || local.method != member.method || local.flags != member.flags || !same_sizes) {
    fail_at(place, "byte {}: its header and the directory disagree", member.header);
  }
}

void check_apart(std::vector<ZipMember> members, const Place& place) {
  std::sort(members.begin(), members.end(), [](auto& a, auto& b) { return a.header < b.header; });
  for (std::size_t i = 1; i < members.size(); ++i) {
    const ZipMember& before = members[i - 1];
    if (before.data + before.compressed > members[i].header) {
      fail_at(place, "byte {}: members {} and {} overlap", members[i].header, quote(before.name),
              quote(members[i].name));
    }
  }
}

}  // namespace

std::vector<ZipMember> read_zip_directory(const InputFile& file) {
  const Directory directory = find_directory(file);
  const std::string bytes = file.read(directory.start, directory.size);
  Fields fields(bytes, file.place(), directory.start);
  std::vector<ZipMember> members;
  std::set<std::string_view> names;
  while (!fields.empty()) members.push_back(read_entry(fields, file.place()));
  if (members.size() != directory.count) {
    fail_at(file.place(), "byte {}: the directory has {} members, {} were announced", directory.start, members.size(),
            directory.count);
  }
  for (ZipMember& member : members) {
    if (!names.insert(member.name).second) fail_at(file.place(), "member {} comes twice", quote(member.name));
    locate_data(file, directory, member);
  }
  check_apart(members, file.place());
  return members;
}

struct ZipMemberStream::Inflater {
  z_stream stream{};
  std::uint64_t taken = 0;  // compressed bytes read from the file
  bool ended = false;
  unsigned char input[1 << 16];
};

ZipMemberStream::ZipMemberStream(const InputFile& file, const ZipMember& member, Place place)
    : ByteStream(std::move(place), member.size), file_(file), member_(member) {
  if (member.method == stored) return;
  inflater_ = std::make_unique<Inflater>();
  constexpr int raw_deflate = -15;
  if (inflateInit2(&inflater_->stream, raw_deflate) != Z_OK) {
    inflater_.reset();
    fail(ErrorCode::out_of_memory, this->place(), "no memory to inflate it");
  }
}

ZipMemberStream::~ZipMemberStream() {
  if (inflater_) inflateEnd(&inflater_->stream);
}

void ZipMemberStream::fill(void* to, std::uint64_t count) {
  if (inflater_) {
    fill_deflated(to, count);
  } else {
    file_.read(member_.data + position(), to, count);
  }
  crc_ = static_cast<std::uint32_t>(crc32_z(crc_, static_cast<const Bytef*>(to), count));
}

void ZipMemberStream::fill_deflated(void* to, std::uint64_t count) {
  auto* out = static_cast<char*>(to);
  std::uint64_t done = 0;
  while (done < count) {
    const std::uint64_t got = inflate_some(out + done, count - done);
    if (got == 0) {
      fail_at(place(), "inflates to {} bytes, {} were announced", position() + done, size());
    }
    done += got;
  }
}

// Inflates at least one byte, and returns how many; 0 at the end of the deflated data.
std::uint64_t ZipMemberStream::inflate_some(void* to, std::uint64_t count) {
  z_stream& stream = inflater_->stream;
  const auto room = static_cast<uInt>(std::min<std::uint64_t>(count, 1 << 30));
  stream.next_out = static_cast<Bytef*>(to);
  stream.avail_out = room;
  while (!inflater_->ended && stream.avail_out == room) {
    if (stream.avail_in == 0) {
      const std::uint64_t next =
          std::min<std::uint64_t>(member_.compressed - inflater_->taken, sizeof inflater_->input);
      if (next == 0) fail_at(place(), "byte {}: the deflated data is cut short", member_.data + inflater_->taken);
      file_.read(member_.data + inflater_->taken, inflater_->input, next);
      inflater_->taken += next;
      stream.next_in = inflater_->input;
      stream.avail_in = static_cast<uInt>(next);
    }
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) fail(ErrorCode::out_of_memory, place(), "no memory to inflate it");
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      fail_at(place(), "byte {}: the deflated data is broken: {}", member_.data + inflater_->taken - stream.avail_in,
              stream.msg != nullptr ? stream.msg : "a dictionary is asked for");
    }
    inflater_->ended = status == Z_STREAM_END;
  }
  return room - stream.avail_out;
}

void ZipMemberStream::finish() {
  if (inflater_) {
    char beyond = 0;
    if (inflate_some(&beyond, 1) != 0) fail_at(place(), "inflates to more than the {} bytes announced", size());
    const std::uint64_t used = inflater_->taken - inflater_->stream.avail_in;
    if (used != member_.compressed) {
      fail_at(place(), "byte {}: {} bytes follow the deflated data", member_.data + used, member_.compressed - used);
    }
  }
  if (crc_ != member_.crc) {
    fail_at(place(), "the content's checksum is {:08x}, {:08x} was announced", crc_, member_.crc);
  }
}

}  // namespace attend::inline v1
