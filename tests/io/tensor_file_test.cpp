// Tensors where they lie in a file, and a file that several processes write together.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "attend/io.h"
#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using namespace test;

Tensor counted(DType dtype = DType::f32) {
  return counting({2, 5, 3}, dtype);
}

class TensorFileTest : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }

  Folder folder_;
};

TEST_F(TensorFileTest, ShowsWhatTheReadersRead) {
  write_npy(path("a.npy"), counted());
  write_safetensors(path("a.safetensors"), {{"x", counted()}, {"y", counted(DType::bf16)}});
  write_npz(path("a.npz"), {{"x", counted()}});
  expect_same(TensorFile(path("a.npy")).view(""), counted());
  const TensorFile tensors(path("a.safetensors"));
  EXPECT_EQ(tensors.names(), (std::vector<std::string>{"x", "y"}));
  expect_same(tensors.view("x"), counted());
  expect_same(tensors.view("y"), counted(DType::bf16));
  EXPECT_EQ(tensors.shape("y"), (Dims{2, 5, 3}));
  EXPECT_EQ(tensors.dtype("y"), DType::bf16);
  expect_same(TensorFile(path("a.npz")).view("x"), counted());
}

TEST_F(TensorFileTest, ShowsAPartOfAnAxis) {
  write_npy(path("a.npy"), counted());
  const TensorFile file(path("a.npy"));
  expect_same(file.view("", -2, {1, 4}), counted().view().slice(1, 1, 4));
  expect_same(file.view("", 0, {1, 1}), counted().view().slice(0, 1, 1));
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        file.view("", 1, {4, 6});
      },
      "TensorFile::view: part 4 to 6 of axis 1 of shape [2,5,3]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        file.view("", 3, {0, 1});
      },
      "TensorFile::view: axis 3 of shape [2,5,3]");
  expect_error(
      ErrorCode::bad_value, [&] { (void)file.view("z"); }, "holds no tensor 'z'");
}

// NumPy's own bytes: axes the other way round, and numbers that this machine doesn't read in place.
TEST_F(TensorFileTest, ShowsFortranOrderAndReadsBigEndian) {
  const auto write = [&](const char* name, const std::string& descr, bool fortran, const std::string& data) {
    std::string header =
        "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': (2, 3), }";
    header.append(118 - header.size() - 1, ' ').push_back('\n');
    std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
    bytes.append(header).append(data);
    put(path(name), bytes);
  };
  write("fortran.npy", "|u1", true, std::string("\0\3\1\4\2\5", 6));
  const TensorFile fortran(path("fortran.npy"));
  EXPECT_EQ(fortran.view("").strides(), (Dims{1, 2}));
  expect_same(fortran.view("").clone(), read_npy(path("fortran.npy")));
  write("big.npy", ">f2", false, std::string("\x3c\0\x40\0\x42\0\x44\0\x45\0\x46\0", 12));
  EXPECT_EQ(TensorFile(path("big.npy")).view("").item({1, 2}), 6);
}

TEST_F(TensorFileTest, LooksAtTheBoolsOfAPartAlone) {
  const Tensor yes({2, 4}, DType::boolean);
  write_npy(path("m.npy"), yes);
  std::string bytes = get(path("m.npy"));
  bytes[bytes.size() - 1] = 2;
  put(path("m.npy"), bytes);
  const TensorFile file(path("m.npy"));
  expect_same(file.view("", 1, {0, 3}), yes.view().slice(1, 0, 3));
  for (const auto& look : {std::function([&] { (void)file.view(""); }), std::function([&] {
                             file.view("", 0, {1, 2});
                           })})
    expect_error(ErrorCode::bad_file, look, "byte 135: a bool is 0 or 1, and this is 2");
}

TEST_F(TensorFileTest, RefusesWhatTheReadersRefuse) {
  put(path("empty.npy"), "");
  put(path("text.npy"), "no tensors in here");
  expect_error(
      ErrorCode::bad_file, [&] { TensorFile{path("empty.npy")}; }, "is empty");
  expect_error(
      ErrorCode::bad_file, [&] { TensorFile{path("text.npy")}; }, "is not an .npy");
  write_npy(path("cut.npy"), counted());
  std::filesystem::resize_file(path("cut.npy"), 140);
  expect_error(
      ErrorCode::bad_file, [&] { TensorFile{path("cut.npy")}; }, "cut short");
}

class SharedTensorFileTest : public TensorFileTest {
 protected:
  // Two processes, each with its rows: the file of one.
  void expect_one_file(const std::string& name, bool nearby) {
    const std::vector<SharedTensorFile::Entry> entries{{"out", DType::f32, {2, 5, 3}}};
    const std::vector<Range> first{{0, 1}, {4, 5}}, second{{1, 4}};
    SharedTensorFile file(path(name), entries, nearby);
    const std::string place = file.place();
    const Tensor x = counted();
    const pid_t other = fork();
    if (other == 0) {
      SharedTensorFile same(path(name), entries, std::string_view(place));
      same.write("out", 1, second, x.view().slice(1, 1, 4));
      same.finish();
      _exit(0);
    }
    Tensor ends({2, 2, 3});
    ends.view().slice(1, 0, 1).copy_from(x.view().slice(1, 0, 1));
    ends.view().slice(1, 1, 2).copy_from(x.view().slice(1, 4, 5));
    file.write("out", 1, first, ends);
    file.finish();
    int status = -1;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(std::filesystem::exists(path(name)));
    file.commit();
  }
};

TEST_F(SharedTensorFileTest, HasTheBytesOfOneProcess) {
  write_npy(path("one.npy"), counted());
  write_safetensors(path("one.safetensors"), {{"out", counted()}});
  for (const bool nearby : {true, false}) {
    for (const std::string ending : {".npy", ".safetensors"}) {
      expect_one_file("out" + ending, nearby);
      EXPECT_EQ(get(path("out" + ending)), get(path("one" + ending)));
      std::filesystem::remove(path("out" + ending));
    }
  }
  EXPECT_EQ(folder_.entries(), 2);
}

TEST_F(SharedTensorFileTest, LeavesNothingWithoutACommit) {
  for (const bool nearby : {true, false}) SharedTensorFile(path("out.npy"), {{"", DType::f32, {4}}}, nearby);
  EXPECT_EQ(folder_.entries(), 0);
}

TEST_F(SharedTensorFileTest, RefusesWhatDoesNotFit) {
  SharedTensorFile file(path("out.npy"), {{"", DType::f32, {4, 2}}}, true);
  const std::vector<Range> half{{0, 2}}, beyond{{3, 5}};
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        file.write("", 0, half, Tensor({3, 2}));
      },
      "SharedTensorFile::write: '' is f32 [3,2], expected f32 [2,2]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        file.write("", 0, beyond, Tensor({2, 2}));
      },
      "SharedTensorFile::write: run 3 to 5 of axis 0 of shape [4,2]");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        file.write("x", 0, half, Tensor({2, 2}));
      },
      "no tensor 'x'");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        SharedTensorFile(path("out.npz"), {{"", DType::f32, {4}}}, true);
      },
      "several processes write one tensor as .npy");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        SharedTensorFile(path("out.npy"), {{"", DType::bf16, {4}}}, true);
      },
      "NumPy has no dtype for bf16");
  expect_error(
      ErrorCode::bad_file,
      [&] {
        SharedTensorFile("/dev/null.npy/x.npy", {{"", DType::f32, {4}}}, true);
      },
      "folder");
}

// Of another file, or of one that isn't there any more: nothing is written into what happens to have the name.
TEST_F(SharedTensorFileTest, KnowsTheFileThatWasBegun) {
  const std::vector<SharedTensorFile::Entry> entries{{"", DType::f32, {4}}};
  SharedTensorFile file(path("out.npy"), entries, true);
  const std::string place = file.place();
  put(path("other.npy"), "");
  const std::string wrong = place.substr(0, place.find('/')) + path("other.npy").string();
  expect_error(
      ErrorCode::bad_file, [&] { SharedTensorFile(path("out.npy"), entries, std::string_view(wrong)); },
      "can't be seen from here");
  expect_error(
      ErrorCode::bad_file, [&] { SharedTensorFile(path("out.npy"), entries, std::string_view("0:0:/nowhere")); },
      "can't be opened");
  expect_error(
      ErrorCode::bad_value, [&] { SharedTensorFile(path("out.npy"), entries, std::string_view("elsewhere")); },
      "expected what place() says");
}

}  // namespace
}  // namespace attend
