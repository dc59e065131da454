#include <zlib.h>

#include "io/zip.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using test::counting;
using test::expect_error;
using test::expect_same;
using test::Folder;
using test::get;
using test::put;

std::filesystem::path golden(const std::string& name) {
  return test::data("golden/files/" + name + ".npz");
}

std::string npy_bytes(const View& tensor) {
  const Folder folder;
  write_npy(folder / "x", tensor);
  return get(folder / "x");
}

std::string deflate_raw(const std::string& content) {
  std::string out(compressBound(content.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A member whose two headers may lie, each in its own way.
struct Crafted {
  ZipMember local;
  ZipMember entry;
  std::string data;
  std::string after;
};

Crafted member(const std::string& name, const std::string& content, bool deflated = false) {
  Crafted out;
  out.data = deflated ? deflate_raw(content) : content;
  out.local.name = name;
  out.local.method = deflated ? 8 : 0;
  out.local.crc = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  out.local.size = content.size();
  out.local.compressed = out.data.size();
  out.entry = out.local;
  return out;
}

// Applies a change to both headers.
template <class Change>
Crafted changed(Crafted crafted, Change change) {
  change(crafted.local);
  change(crafted.entry);
  return crafted;
}

std::string zip_of(std::vector<Crafted> members) {
  std::string bytes;
  std::string directory;
  for (Crafted& m : members) {
    if (m.entry.header == 0) m.entry.header = bytes.size();
    directory += zip_directory_entry(m.entry);
    bytes += zip_local_header(m.local) + m.data + m.after;
  }
  return bytes + directory + zip_directory_end(members.size(), bytes.size(), directory.size());
}

TensorMap read(const std::string& bytes) {
  const Folder folder;
  put(folder / "x.npz", bytes);
  return read_npz(folder / "x.npz");
}

template <class... Texts>
void expect_bad(const std::string& bytes, const Texts&... texts) {
  expect_error(
      ErrorCode::bad_file, [&] { read(bytes); }, "read_npz: '", "x.npz'", texts...);
}

class Npz : public testing::Test {
 protected:
  const Tensor tensor_ = counting({4, 5});
  const std::string content_ = npy_bytes(tensor_);
  const Crafted stored_ = member("a.npy", content_);
  const Crafted deflated_ = member("b.npy", content_, true);
};

TEST_F(Npz, ReadsWhatNumPyWrites) {
  for (const char* name : {"savez", "savez_compressed", "streamed"}) {
    SCOPED_TRACE(name);
    const TensorMap tensors = read_npz(golden(name));
    EXPECT_EQ(tensors.size(), 10u);
    for (const DType dtype : test::all_dtypes) {
      if (dtype == DType::bf16) continue;
      expect_same(tensors.at(std::string(name_of(dtype))), counting({2, 3}, dtype));
    }
    EXPECT_EQ(tensors.at("scalar").item(), 7);
    expect_same(tensors.at("empty"), counting({3, 0, 2}));
    expect_same(tensors.at("größe"), counting({5}));
  }
  EXPECT_TRUE(read_npz(golden("no_members")).empty());
}

TEST_F(Npz, WritesWhatItReads) {
  const Folder folder;
  TensorMap tensors;
  for (const DType dtype : test::all_dtypes) {
    if (dtype != DType::bf16) tensors.emplace("名/" + std::string(name_of(dtype)), counting({3, 5}, dtype));
  }
  tensors.emplace("", counting({0}));
  tensors.emplace("x.npy", counting(Dims{}));
  write_npz(folder / "x", views_of(tensors));
  write_npz(folder / "y", views_of(tensors));
  EXPECT_EQ(get(folder / "x"), get(folder / "y"));
  const TensorMap back = read_npz(folder / "x");
  ASSERT_EQ(back.size(), tensors.size());
  for (const auto& [name, expected] : tensors) expect_same(back.at(name), expected, name);
  write_npz(folder / "none", {});
  EXPECT_TRUE(read_npz(folder / "none").empty());
}

TEST_F(Npz, RefusesToWriteWhatCanNotBeRead) {
  const Folder folder;
  const Tensor bf16({1}, DType::bf16);
  const auto write = [&](const NamedViews& tensors) { write_npz(folder / "x", tensors); };
  expect_error(
      ErrorCode::bad_value,
      [&] {
        write({{"a", tensor_}, {"a", tensor_}});
      },
      "write_npz: tensor 'a'", "twice");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        write({{"\xff", tensor_}});
      },
      "not UTF-8");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        write({{std::string("a\0b", 3), tensor_}});
      },
      "zero byte");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        write({{std::string(65532, 'a'), tensor_}});
      },
      "65535");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        write({{"a", tensor_}, {"b", bf16}});
      },
      "tensor 'b'", "bf16");
  EXPECT_EQ(folder.entries(), 0);
}

TEST_F(Npz, HoldsMoreMembersThanAPlainZip) {
  const Folder folder;
  const Tensor t = counting({1});
  NamedViews views;
  for (int i = 0; i < 65'536; ++i) views.emplace_back(std::to_string(i), t);
  write_npz(folder / "x", views);
  EXPECT_EQ(read_npz(folder / "x").size(), 65'536u);
}

TEST_F(Npz, WritesZip64FieldsForNumbersBeyond32Bits) {
  ZipMember large;
  large.name = "a";
  large.size = large.compressed = std::uint64_t{5} << 32;
  large.header = std::uint64_t{7} << 32;
  const std::string size = test::bytes_of(large.size);
  const std::string extra = std::string("\1\0\x10\0", 4) + size + size;
  EXPECT_THAT(zip_local_header(large), testing::EndsWith("a" + extra));
  EXPECT_EQ(zip_local_header(large).substr(18, 8), std::string(8, '\xff'));
  EXPECT_THAT(zip_directory_entry(large),
              testing::EndsWith("a" + std::string("\1\0\x18\0", 4) + size + size + test::bytes_of(large.header)));
}

TEST_F(Npz, ReadsStoredDeflatedAndZip64) {
  expect_same(read(zip_of({stored_, deflated_})).at("b"), tensor_);
  // As NumPy does: zip64 fields though the numbers are small.
  Crafted wide = stored_;
  std::string header = zip_local_header(wide.local);
  header.replace(18, 8, std::string(8, '\xff'));
  header[28] = 20;
  header += std::string("\1\0\x10\0", 4) + test::bytes_of(wide.local.size) + test::bytes_of(wide.local.size);
  const std::string entry = zip_directory_entry(wide.entry);
  const std::string body = header + wide.data;
  expect_same(read(body + entry + zip_directory_end(1, body.size(), entry.size())).at("a"), tensor_);
  // The directory's end too, as zip64.
  std::string end(zip_directory_end(0xffff, body.size(), entry.size()));
  end.replace(24, 16, test::bytes_of(std::uint64_t{1}) + test::bytes_of(std::uint64_t{1}));
  expect_same(read(body + entry + end).at("a"), tensor_);
  // Without the extra field the numbers are missing.
  header.resize(30 + 5);
  header[28] = 0;
  const std::string without = header + wide.data;
  expect_bad(without + entry + zip_directory_end(1, without.size(), entry.size()), "cut short");
}

TEST_F(Npz, RefusesLyingSizes) {
  for (const std::int64_t lie : {-1, 1, -200, 200}) {
    SCOPED_TRACE(lie);
    const auto more = static_cast<std::uint64_t>(lie);  // or less: modulo 2^64
    const auto size = [more](ZipMember& m) { m.size += more; };
    const auto both = [more](ZipMember& m) { m.size = m.compressed += more; };
    const auto compressed = [more](ZipMember& m) { m.compressed += more; };
    expect_bad(zip_of({changed(stored_, size)}), "member 'a.npy'", "stored, but claims");
    expect_bad(zip_of({changed(stored_, both)}));
    expect_bad(zip_of({changed(deflated_, size)}), "member 'b.npy'");
    if (lie > 0 || lie == -1) expect_bad(zip_of({changed(deflated_, compressed)}), "member 'b.npy'");
    Crafted local = deflated_;
    size(local.local);
    expect_bad(zip_of({local}), "member 'b.npy'", "disagree");
  }
}

// The claim of size and the .npy header agree here, so that only inflating finds the lie.
TEST_F(Npz, RefusesContentOfAnotherLengthThanAnnounced) {
  const auto says = [&](std::size_t size, const std::string& content) {
    return zip_of({changed(member("a.npy", content, true), [&](ZipMember& m) { m.size = size; })});
  };
  expect_bad(says(content_.size(), content_.substr(0, content_.size() - 3)), "member 'a.npy'", "inflates to 205 bytes",
             "208 were announced");
  expect_bad(says(content_.size(), content_ + "more"), "inflates to more than the 208 bytes");
}

TEST_F(Npz, AsksForNoMoreMemoryThanTheDataJustifies) {
  const std::string huge = npy_bytes(Tensor({1}).view().broadcast_to({1}));
  std::string claim = huge.substr(0, huge.size() - 4);
  const std::string shape = "(1,), }";
  claim.replace(claim.find(shape), 24, "(1099511627776,), }     ");
  const auto bomb = [&](bool deflated) {
    return zip_of({changed(member("a.npy", claim, deflated),
                           [&](ZipMember& m) { m.size = claim.size() + (std::uint64_t{1} << 42); })});
  };
  expect_bad(bomb(true), "member 'a.npy'", "more than", "can hold");
  expect_bad(bomb(false), "stored, but claims");
}

TEST_F(Npz, RefusesWrongChecksumsAndBrokenDeflate) {
  expect_bad(zip_of({changed(stored_, [](ZipMember& m) { ++m.crc; })}), "member 'a.npy'", "checksum");
  expect_bad(zip_of({changed(deflated_, [](ZipMember& m) { ++m.crc; })}), "member 'b.npy'", "checksum");
  Crafted broken = deflated_;
  broken.data[0] = 7;
  expect_bad(zip_of({broken}), "member 'b.npy'", "broken");
  Crafted trailing = changed(deflated_, [](ZipMember& m) { m.compressed += 2; });
  trailing.data += "xx";
  expect_bad(zip_of({trailing}), "2 bytes follow the deflated data");
}

TEST_F(Npz, RefusesEncryptionAndOtherMethods) {
  expect_bad(zip_of({changed(stored_, [](ZipMember& m) { m.flags = 1; })}), "'a.npy'", "encrypted");
  expect_bad(zip_of({changed(stored_, [](ZipMember& m) { m.flags = 1 << 13; })}), "encrypted");
  expect_bad(zip_of({changed(stored_, [](ZipMember& m) { m.flags = 1 << 5; })}), "patch");
  expect_bad(zip_of({changed(stored_, [](ZipMember& m) { m.method = 12; })}), "'a.npy'", "method 12");
}

TEST_F(Npz, RefusesNames) {
  const auto named = [&](const std::string& name, std::uint16_t flags) {
    return zip_of({changed(stored_, [&](ZipMember& m) {
      m.name = name;
      m.flags = flags;
    })});
  };
  expect_bad(zip_of({stored_, stored_}), "member 'a.npy' comes twice");
  expect_bad(zip_of({stored_, member("a", content_)}), "tensor 'a' comes twice");
  expect_bad(named("\xc3\xa9.npy", 0), "not marked as UTF-8");
  expect_bad(named("\xff.npy", 1 << 11), "not UTF-8");
  expect_bad(named(std::string("a\0.npy", 6), 0), "zero byte");
}

TEST_F(Npz, RefusesWrongPlaces) {
  const Crafted second = deflated_;
  Crafted moved = second;
  moved.entry.header = 1;
  expect_bad(zip_of({stored_, moved}), "member 'b.npy'", "byte 1");
  moved.entry.header = 1 << 20;
  expect_bad(zip_of({stored_, moved}), "said to begin at byte 1048576");
  moved.entry.header = 0xffffffffffffffff;
  expect_bad(zip_of({stored_, moved}), "said to begin at byte 18446744073709551615");
  moved = changed(second, [](ZipMember& m) { m.compressed = 1 << 20; });
  expect_bad(zip_of({stored_, moved}), "reach beyond the directory");
  moved = changed(second, [](ZipMember& m) { m.compressed = ~std::uint64_t{0} - 5; });
  expect_bad(zip_of({stored_, moved}), "reach beyond the directory");
  // The first member's bytes hold the second one whole.
  const std::string inner = zip_local_header(second.local) + second.data;
  Crafted outer = member("a.npy", content_ + inner);
  const std::string body = zip_local_header(outer.local) + outer.data;
  Crafted hidden = second;
  hidden.entry.header = body.size() - inner.size();
  const std::string directory = zip_directory_entry(outer.entry) + zip_directory_entry(hidden.entry);
  expect_bad(body + directory + zip_directory_end(2, body.size(), directory.size()), "'a.npy' and 'b.npy' overlap");
}

TEST_F(Npz, RefusesWrongDirectories) {
  const std::string body = zip_local_header(stored_.local) + stored_.data;
  const std::string entry = zip_directory_entry(stored_.entry);
  const auto ending = [&](std::uint64_t count, std::uint64_t start, std::uint64_t size) {
    return body + entry + zip_directory_end(count, start, size);
  };
  EXPECT_EQ(read(ending(1, body.size(), entry.size())).size(), 1u);
  expect_bad(ending(2, body.size(), entry.size()), "has 1 members, 2 were announced");
  expect_bad(ending(0, body.size(), entry.size()), "has 1 members, 0 were announced");
  expect_bad(ending(1, body.size() + 1, entry.size()), "must end at byte");
  expect_bad(ending(1, body.size(), entry.size() + 1), "must end at byte");
  expect_bad(ending(1, body.size() + 1, entry.size() - 1), "no directory entry");
  expect_bad(ending(1, 1 << 30, entry.size()), "must end at byte");
  expect_bad(ending(std::uint64_t{1} << 60, body.size(), entry.size()), "were announced");
  expect_bad(ending(1, ~std::uint64_t{0}, 0), "outside of its place");
  expect_bad(ending(1, body.size(), entry.size()) + "x", "no directory of a zip ends here");
  expect_bad("x" + ending(1, body.size(), entry.size()), "must end at byte");
}

TEST_F(Npz, ReadsPastACommentAndDataDescriptors) {
  std::string bytes = zip_of({stored_});
  bytes[bytes.size() - 2] = 5;
  expect_same(read(bytes + "PK\5\6!").at("a"), tensor_);
  Crafted streamed = changed(deflated_, [](ZipMember& m) { m.flags = 1 << 3; });
  streamed.local.crc = 0;
  streamed.local.size = streamed.local.compressed = 0;
  streamed.after = "PK\7\10" + std::string(12, '\0');
  expect_same(read(zip_of({streamed, stored_})).at("b"), tensor_);
}

TEST_F(Npz, NamesTheMemberOfABrokenTensor) {
  expect_bad(zip_of({member("q.npy", "text")}), "member 'q.npy'", "not an .npy");
  expect_bad(zip_of({member("folder/", "")}), "member 'folder/'", "is empty");
  expect_bad(zip_of({stored_, member("q.npy", content_ + "x")}), "member 'q.npy'", "trailing");
}

TEST_F(Npz, RefusesEveryBeginning) {
  test::expect_cut_short(zip_of({stored_, deflated_}), [](const auto& path) { read_npz(path); });
}

TEST_F(Npz, SurvivesAnyChangedByte) {
  test::expect_no_crash(zip_of({stored_, deflated_}), [](const auto& path) { read_npz(path); });
  // NumPy's own: zip64 fields in the local headers.
  test::expect_no_crash(get(golden("savez_compressed")), [](const auto& path) { read_npz(path); });
}

}  // namespace
}  // namespace attend
