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
  return test::data("golden/files/" + name + ".npy");
}

// An .npy file of version 1.0 with that header.
std::string npy(const std::string& header, const std::string& data = "") {
  return "\x93NUMPY" + std::string("\1\0", 2) + test::bytes_of(static_cast<std::uint16_t>(header.size())) + header +
         data;
}

std::string npy_of(const std::string& descr, const std::string& shape, const std::string& data = "") {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", data);
}

Tensor read(const std::string& bytes) {
  const Folder folder;
  put(folder / "x.npy", bytes);
  return read_npy(folder / "x.npy");
}

template <class... Texts>
void expect_bad(const std::string& bytes, const Texts&... texts) {
  SCOPED_TRACE(testing::PrintToString(bytes));
  expect_error(
      ErrorCode::bad_file, [&] { read(bytes); }, "read_npy: '", "x.npy'", texts...);
}

TEST(Npy, ReadsAndWritesWhatNumPyWrites) {
  const Folder folder;
  for (const DType dtype : test::all_dtypes) {
    if (dtype == DType::bf16) continue;
    const std::string name(name_of(dtype));
    expect_same(read_npy(golden(name)), counting({2, 3}, dtype), name);
    write_npy(folder / name, counting({2, 3}, dtype));
    EXPECT_EQ(get(folder / name), get(golden(name))) << name;
  }
}

TEST(Npy, ReadsAndWritesAnyShape) {
  const Folder folder;
  const std::pair<std::string, Tensor> cases[] = {{"scalar", Tensor::from(Dims{}, {7}).view().to(DType::f64)},
                                                  {"empty", counting({3, 0, 2})},
                                                  {"one_axis", counting({5})},
                                                  {"rank_8", counting({1, 2, 1, 2, 1, 2, 1, 2})}};
  for (const auto& [name, expected] : cases) {
    expect_same(read_npy(golden(name)), expected, name);
    write_npy(folder / name, expected);
    EXPECT_EQ(get(folder / name), get(golden(name))) << name;
  }
}

TEST(Npy, ReadsBigEndianAndFortranOrder) {
  for (const DType dtype : {DType::f16, DType::f32, DType::f64, DType::i64}) {
    expect_same(read_npy(golden(std::string(name_of(dtype)) + "_big_endian")), counting({2, 3}, dtype));
  }
  expect_same(read_npy(golden("fortran")), counting({2, 3, 4}));
  expect_same(read_npy(golden("fortran_big_endian")), counting({2, 3}, DType::i64));
}

TEST(Npy, ReadsVersions2And3) {
  expect_same(read_npy(golden("version_2")), counting({2, 3}));
  expect_same(read_npy(golden("version_3")), counting({2, 3}));
}

TEST(Npy, ReadsHeadersThatOthersWrite) {
  const std::string data(8, '\0');
  const Tensor zeros({2});
  expect_same(read(npy("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}", data)), zeros);
  expect_same(read(npy("{'descr': '=f4', 'fortran_order': True, 'shape': (2L,)}   \n", data)), zeros);
  expect_same(read(npy_of("f4", "( 2 , )", data)), zeros);
}

TEST(Npy, WritesAnyStrides) {
  const Folder folder;
  const Tensor source = counting({4, 6});
  const View view = source.view().transpose(0, 1).slice(0, 1, 6, 2);
  write_npy(folder / "x.npy", view);
  expect_same(read_npy(folder / "x.npy"), view);
}

TEST(Npy, HasNoTypeForBF16) {
  const Folder folder;
  expect_error(
      ErrorCode::bad_dtype, [&] { write_npy(folder / "x.npy", Tensor({2}, DType::bf16)); }, "write_npy", "bf16");
  EXPECT_EQ(folder.entries(), 0);
}

TEST(Npy, RefusesOtherTypesByName) {
  const auto refuse = [](const std::string& name, const std::string& text) {
    expect_error(
        ErrorCode::bad_file, [&] { read_npy(golden(name)); }, name + ".npy", text, "float32", "bool are read");
  };
  refuse("object", "object dtype '|O'");
  refuse("complex", "dtype '<c16'");
  refuse("structured", "structured dtypes");
  refuse("int32", "dtype '<i4'");
}

TEST(Npy, RefusesBrokenHeaders) {
  expect_bad("", "is empty");
  expect_bad("PK\3\4", "byte 0", "not an .npy");
  expect_bad("\x93NUMPY" + std::string("\4\0\0\0\0\0", 6), "byte 6", "version 4.0");
  expect_bad("\x93NUMPY" + std::string("\2\0\xff\xff\xff\xff", 6), "byte 8", "4294967295");
  expect_bad(npy(""), "byte 10", "'{' was expected");
  expect_bad(npy("{'descr': '<f4', 'fortran_order': False}"), "'shape' is missing");
  expect_bad(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}"), "key 'x'");
  expect_bad(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}"), "'descr' comes twice");
  expect_bad(npy("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}"), "byte 44", "fortran_order");
  expect_bad(npy("{'descr': '<f4' 'fortran_order': False, 'shape': ()}"), "expected ','", "'''");
  expect_bad(npy("{'descr': '<f4"), "string does not end");
  expect_bad(npy("{'descr': '\\x3cf4', 'fortran_order': False, 'shape': ()}"), "backslash");
  expect_bad(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} 1"), "follows");
  expect_bad(npy_of("<f3", "()"), "dtype '<f3'");
  expect_bad(npy_of("\x1b[2J", "()"), "'\\x1b[2J'");
}

TEST(Npy, RefusesBrokenShapes) {
  expect_bad(npy_of("<f4", "(3)"), "not a tuple");
  expect_bad(npy_of("<f4", "(-1,)"), "expected a size");
  expect_bad(npy_of("<f4", "(1 2)"), "expected ','");
  expect_bad(npy_of("<f4", "(99999999999999999999,)"), "64 bits");
  expect_bad(npy_of("<f4", "(4294967296, 4294967296)"), "[4294967296,4294967296]", "63 bits");
  expect_bad(npy_of("<f4", "(0, 4294967296, 4294967296)"), "63 bits");
  expect_bad(npy_of("<f4", "(2305843009213693952,)"), "63 bits");
  expect_bad(npy_of("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "more than 8");
}

TEST(Npy, RefusesWrongSizesOfData) {
  expect_bad(npy_of("<f4", "(2,)", std::string(7, '\0')), "8 bytes, but 7 are left", "cut short");
  expect_bad(npy_of("<f4", "(2,)", std::string(9, '\0')), "8 bytes, but 9 are left", "trailing");
  expect_bad(npy_of("<f8", "(1099511627776,)"), "cut short");  // 8 TiB are not asked for
}

TEST(Npy, RefusesBoolsThatAreNeither0Nor1) {
  const std::string bytes = npy_of("|b1", "(3,)", std::string("\0\1\2", 3));
  expect_bad(bytes, "byte " + std::to_string(bytes.size() - 1), "this is 2");
}

TEST(Npy, RefusesEveryBeginning) {
  test::expect_cut_short(get(golden("f32")), [](const auto& path) { read_npy(path); });
  test::expect_cut_short(get(golden("version_3")), [](const auto& path) { read_npy(path); });
}

TEST(Npy, SurvivesAnyChangedByte) {
  test::expect_no_crash(get(golden("fortran_big_endian")), [](const auto& path) { read_npy(path); });
  test::expect_no_crash(get(golden("version_2")), [](const auto& path) { read_npy(path); });
}

}  // namespace
}  // namespace attend
