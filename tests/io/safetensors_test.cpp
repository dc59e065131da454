#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/allocations.h"
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
  return test::data("golden/files/" + name + ".safetensors");
}

std::string file_of(const std::string& header, std::size_t data = 0) {
  return test::bytes_of(std::uint64_t{header.size()}) + header + std::string(data, '\0');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& at) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, at);
}

// A file of these tensors, as their descriptions stand in the header.
std::string file_of(std::initializer_list<std::string> tensors, std::size_t data = 0) {
  return file_of(fmt::format("{{{}}}", fmt::join(tensors, ",")), data);
}

Safetensors read(const std::string& bytes) {
  const Folder folder;
  put(folder / "x.safetensors", bytes);
  return read_safetensors(folder / "x.safetensors");
}

template <class... Texts>
void expect_bad(const std::string& bytes, const Texts&... texts) {
  SCOPED_TRACE(testing::PrintToString(bytes.substr(0, 300)));
  expect_error(
      ErrorCode::bad_file, [&] { read(bytes); }, "read_safetensors: '", "x.safetensors'", texts...);
}

TEST(Safetensors, ReadsWhatThePackageWritesAndWritesTheSame) {
  const Safetensors file = read_safetensors(golden("all"));
  EXPECT_THAT(file.metadata, testing::ElementsAre(testing::Pair("format", "np")));
  EXPECT_EQ(file.tensors.size(), 10u);
  for (const DType dtype : test::all_dtypes) {
    if (dtype == DType::bf16) continue;
    expect_same(file.tensors.at(std::string(name_of(dtype))), counting({2, 3}, dtype));
  }
  EXPECT_EQ(file.tensors.at("scalar").item(), 7);
  expect_same(file.tensors.at("empty"), counting({3, 0, 2}));
  expect_same(file.tensors.at("größe"), counting({5}));
  const Folder folder;
  write_safetensors(folder / "all", views_of(file.tensors), file.metadata);
  EXPECT_EQ(get(folder / "all"), get(golden("all")));
}

TEST(Safetensors, ReadsAndWritesNoTensors) {
  EXPECT_TRUE(read_safetensors(golden("no_tensors")).tensors.empty());
  const Folder folder;
  write_safetensors(folder / "none", {});
  EXPECT_EQ(get(folder / "none"), get(golden("no_tensors")));
}

TEST(Safetensors, KeepsEveryTypeNameAndText) {
  const Folder folder;
  TensorMap tensors;
  for (const DType dtype : test::all_dtypes) {
    tensors.emplace("\"\\\n\x01 名 " + std::string(name_of(dtype)), counting({3, 5}, dtype));
  }
  const std::map<std::string, std::string> metadata = {{"", ""}, {"k\"ey", "\x01\n文"}};
  write_safetensors(folder / "x", views_of(tensors), metadata);
  const Safetensors back = read_safetensors(folder / "x");
  EXPECT_EQ(back.metadata, metadata);
  ASSERT_EQ(back.tensors.size(), tensors.size());
  for (const auto& [name, expected] : tensors) expect_same(back.tensors.at(name), expected, name);
}

TEST(Safetensors, WritesAnyStrides) {
  const Folder folder;
  const Tensor source = counting({4, 6});
  const View view = source.view().transpose(0, 1).slice(0, 1, 6, 2);
  write_safetensors(folder / "x", {{"t", view}});
  expect_same(read_safetensors(folder / "x").tensors.at("t"), view);
}

TEST(Safetensors, RefusesToWriteWhatCanNotBeRead) {
  const Folder folder;
  const Tensor t({1});
  const auto refuse = [&](const NamedViews& tensors, const std::map<std::string, std::string>& metadata,
                          const std::string& text) {
    expect_error(
        ErrorCode::bad_value, [&] { write_safetensors(folder / "x", tensors, metadata); }, "write_safetensors", text);
  };
  refuse({{"a", t}, {"a", t}}, {}, "'a': the name comes twice");
  refuse({{"\xff", t}}, {}, "not UTF-8");
  refuse({{"__metadata__", t}}, {}, "__metadata__");
  refuse({{"a", t}}, {{"k", "\xc0"}}, "not UTF-8");
  refuse({{"a", t}}, {{"\xc0", ""}}, "not UTF-8");
  EXPECT_EQ(folder.entries(), 0);
}

// As NumPy and PyTorch have indices of 32 bits.
TEST(Safetensors, I32IsReadAsI64) {
  std::string bytes = file_of({tensor("a", "U8", "[1]", "[0,1]"), tensor("b", "I32", "[2,2]", "[1,17]")}, 17);
  const std::int32_t numbers[] = {1, -1, INT32_MAX, INT32_MIN};
  bytes.replace(bytes.size() - sizeof numbers, sizeof numbers, reinterpret_cast<const char*>(numbers), sizeof numbers);
  const Safetensors all = read(bytes);
  const Tensor& found = all.tensors.at("b");
  EXPECT_EQ(found.dtype(), DType::i64);
  EXPECT_EQ(found.shape(), (Dims{2, 2}));
  EXPECT_TRUE(std::ranges::equal(std::span(found.data<std::int64_t>(), 4), numbers));
  const Folder folder;
  put(folder / "x", bytes);
  expect_same(TensorFile(folder / "x").view("b"), found);
  expect_bad(file_of({tensor("b", "I32", "[2]", "[0,16]")}, 16), "takes 8 bytes", "hold 16");
}

TEST(Safetensors, RefusesWrongHeaderLengths) {
  expect_bad("", "is empty");
  expect_bad(test::bytes_of(std::uint64_t{3}) + "{}", "byte 0", "3 bytes, but 2 follow");
  expect_bad(test::bytes_of(std::uint64_t{100'000'001}) + "{}", "100000001 bytes", "at most 100000000");
  expect_bad(test::bytes_of(~std::uint64_t{0}) + "{}", "18446744073709551615 bytes");
  const Folder folder;
  put(folder / "x", test::bytes_of(std::uint64_t{100'000'001}) + "{}");
  std::filesystem::resize_file(folder / "x", 200'000'000);  // sparse
  expect_error(
      ErrorCode::bad_file, [&] { read_safetensors(folder / "x"); }, "at most 100000000");
}

TEST(Safetensors, RefusesWhatIsNoJson) {
  expect_bad(file_of(""), "begin with '{'");
  expect_bad(file_of(" {}"), "begin with '{'");
  expect_bad(file_of("[]"), "begin with '{'");
  expect_bad(file_of("{}\n"), "byte 10", "end with '}'");
  expect_bad(file_of("{\"a\"}"), "byte 12", "not JSON");
  expect_bad(file_of("{}}"), "not JSON");
  expect_bad(file_of("{\"\xff\":1}"), "byte 10", "not UTF-8");
  expect_bad(file_of("{\xc3\xa9}"), "byte 9", "not JSON");
  expect_bad(file_of("{\"\\ud800\":1}"), "not JSON");
  expect_bad(file_of("{\"a\":1e999}"), "out of range");
  expect_bad(file_of(fmt::format("{{\"a\":{}}}", std::string(1'000'000, '['))), "deeper");
  EXPECT_TRUE(read(file_of("{}     ")).tensors.empty());
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string a = tensor("a", "U8", "[0]", "[0,0]");
  expect_bad(file_of({a, a}), "key 'a' comes twice");
  expect_bad(file_of({a, R"("\u0061":1)"}), "key 'a' comes twice");
  expect_bad(file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), "'dtype' comes twice");
  expect_bad(file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "'k' comes twice");
  expect_bad(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "'__metadata__' comes twice");
}

// A header that is refused for its last member took a tree of twenty times its size.
TEST(Safetensors, ALongHeaderIsRefusedWithLittleMemory) {
  const std::vector<int> ones(500'000, 1);
  const Folder folder;
  put(folder / "x", file_of({tensor("a", "U8", fmt::format("[{}]", fmt::join(ones, ",")), "[0,1]")}));
  const test::CountAllocations allocated;
  EXPECT_THROW(read_safetensors(folder / "x"), Error);
  EXPECT_LT(allocated.list_bytes(), 4'000'000);
}

TEST(Safetensors, RefusesOtherMetadata) {
  expect_bad(file_of(R"({"__metadata__":1})"), "__metadata__ is not an object");
  expect_bad(file_of(R"({"__metadata__":{"k":1}})"), "no string under 'k'");
}

TEST(Safetensors, RefusesOtherDescriptions) {
  expect_bad(file_of("{\"a\":1}"), "tensor 'a'", "exactly");
  expect_bad(file_of(R"({"a":{"dtype":"U8","shape":[0]}})"), "exactly");
  expect_bad(file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})"), "exactly");
  expect_bad(file_of({tensor("a", "U32", "[1]", "[0,4]")}, 4), "tensor 'a'", "'U32' is not read", "F64, F32");
  expect_bad(file_of({tensor("a", "F8_E4M3", "[1]", "[0,1]")}, 1), "'F8_E4M3' is not read");
  expect_bad(file_of({tensor("a", "f32", "[1]", "[0,4]")}, 4), "'f32' is unknown");
  expect_bad(file_of(R"({"a":{"dtype":1,"shape":[0],"data_offsets":[0,0]}})"), "dtype is not a string");
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[9223372036854775808]", "[[]]"}) {
    expect_bad(file_of({tensor("a", "U8", shape, "[0,1]")}, 1), "tensor 'a'", "shape holds");
  }
  expect_bad(file_of({tensor("a", "U8", "{}", "[0,1]")}, 1), "not a list");
  expect_bad(file_of({tensor("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]")}, 1), "9 dimensions");
}

TEST(Safetensors, RefusesShapesThatDoNotFitTheOffsets) {
  expect_bad(file_of({tensor("a", "F32", "[3]", "[0,8]")}, 8), "takes 12 bytes", "[0,8] hold 8");
  expect_bad(file_of({tensor("a", "F32", "[4294967296,4294967296]", "[0,0]")}), "63 bits");
  expect_bad(file_of({tensor("a", "F32", "[2305843009213693952]", "[0,0]")}), "63 bits");
  expect_bad(file_of({tensor("a", "U8", "[0,4294967296,4294967296]", "[0,0]")}), "63 bits");
}

TEST(Safetensors, RefusesOffsetsThatDoNotTile) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return file_of({tensor("a", "U8", "[4]", a), tensor("b", "U8", "[4]", b)}, data);
  };
  EXPECT_EQ(read(two("[4,8]", "[0,4]", 8)).tensors.size(), 2u);
  expect_bad(two("[0,4]", "[2,6]", 6), "tensor 'b'", "[2,6] overlap", "end at 4");
  expect_bad(two("[0,4]", "[0,4]", 4), "overlap");
  expect_bad(two("[0,4]", "[5,9]", 9), "tensor 'b'", "hole from 4");
  expect_bad(two("[1,5]", "[5,9]", 9), "tensor 'a'", "hole from 0");
  expect_bad(two("[0,4]", "[4,8]", 7), "tensor 'b'", "beyond the file");
  expect_bad(two("[0,4]", "[4,8]", 9), "1 trailing bytes");
  expect_bad(two("[0,4]", "[8,4]", 8), "backwards");
  expect_bad(two("[0,4]", "[18446744073709551612,18446744073709551616]", 8), "two whole numbers");
  expect_bad(two("[0,4]", "[18446744073709551611,18446744073709551615]", 8), "beyond the file");
  for (const char* offsets : {"[0]", "[0,4,8]", "[0,4.0]", "[-4,0]", "0"}) {
    expect_bad(two(offsets, "[4,8]", 8), "tensor 'a'", "two whole numbers");
  }
}

TEST(Safetensors, RefusesBoolsThatAreNeither0Nor1) {
  expect_bad(file_of({tensor("a", "BOOL", "[2]", "[0,2]")}) + "\1\3", "tensor 'a'", "this is 3");
}

TEST(Safetensors, RefusesEveryBeginning) {
  test::expect_cut_short(get(golden("all")), [](const auto& path) { read_safetensors(path); });
}

TEST(Safetensors, SurvivesAnyChangedByte) {
  const Folder folder;
  const Tensor t = counting({2}, DType::boolean);
  write_safetensors(folder / "x", {{"a", t}, {"b", t}}, {{"k", "v"}});
  test::expect_no_crash(get(folder / "x"), [](const auto& path) { read_safetensors(path); });
}

}  // namespace
}  // namespace attend
