#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "io/file.h"
#include "tests/io/files.h"

namespace attend {
namespace {

namespace fs = std::filesystem;
using test::counting;
using test::expect_error;
using test::expect_same;
using test::Folder;
using test::get;
using test::put;

// Runs the body in a process of its own, whose limits and user it may change; 0 if it returned true.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    bool fine = false;
    try {
      fine = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

template <class Statement>
bool fails_with(Statement statement, const std::string& text) {
  try {
    statement();
  } catch (const Error& error) {
    return error.code() == ErrorCode::bad_file && std::string(error.what()).find(text) != std::string::npos;
  }
  return false;
}

constexpr uid_t nobody = 65534;

TEST(Files, ADeviceIsRefused) {
  const Folder folder;
  fs::create_symlink("/dev/zero", folder / "zero.npy");  // which has no end
  expect_error(
      ErrorCode::bad_file, [&] { read_npy(folder / "zero.npy"); }, "is a device, expected a file or a pipe");
}

// The system ends a path there: another file would be read, or replaced, than the one whose ending was looked at.
TEST(Files, APathWithAZeroByteIsRefused) {
  const Folder folder;
  put(folder / "victim", "as it was");
  fs::path path = folder / "victim";
  path += std::string_view("\0.npy", 5);
  const Tensor tensor({2});
  expect_error(
      ErrorCode::bad_file, [&] { read_npy(path); }, "read_npy: '", "victim\\x00.npy': the path has a zero byte");
  expect_error(
      ErrorCode::bad_file, [&] { write_npy(path, tensor.view()); }, "write_npy: '", "the path has a zero byte");
  EXPECT_EQ(get(folder / "victim"), "as it was");
}

TEST(ReadFile, NamesWhatCanNotBeRead) {
  const Folder folder;
  put(folder / "file", "");
  const std::pair<const char*, test::Reader> readers[] = {
      {"read_npy: '", [](const auto& path) { read_npy(path); }},
      {"read_npz: '", [](const auto& path) { read_npz(path); }},
      {"read_safetensors: '", [](const auto& path) { read_safetensors(path); }},
      {"read_tensors: '", [](const auto& path) { read_tensors(path); }}};
  for (const auto& [function, read] : readers) {
    const auto refuse = [&, &r = read, &f = function](const std::string& name, const std::string& text) {
      expect_error(
          ErrorCode::bad_file, [&] { r(folder / name); }, f, name, text);
    };
    refuse("missing", "No such file");
    refuse("file/beneath", "Not a directory");
    refuse("", "is a directory");
    refuse("file", "");
  }
}

TEST(ReadFile, NeedsPermission) {
  const Folder folder;
  write_npy(folder / "x", counting({2}));
  fs::permissions(folder / "x", fs::perms::none);
  fs::permissions(folder.path(), fs::perms::all);
  EXPECT_EQ(in_child([&] {
              if (geteuid() == 0 && setuid(nobody) != 0) return false;
              return fails_with([&] { read_npy(folder / "x"); }, "Permission denied");
            }),
            0);
}

TEST(ReadFile, ReadsPipes) {
  const Folder folder;
  const Tensor tensor = counting({100, 1000});
  write_npz(folder / "x", {{"t", tensor}});
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { put(folder / "pipe", get(folder / "x")); });
  const TensorMap tensors = read_tensors(folder / "pipe");
  writer.join();
  expect_same(tensors.at("t"), tensor);
  writer = std::thread([&] { put(folder / "pipe", get(folder / "x")); });
  const TensorFile shown(folder / "pipe");  // which opens it once
  writer.join();
  expect_same(shown.view("t"), tensor);
}

TEST(ReadTensors, TellsTheFormatsApartByContent) {
  const Folder folder;
  const Tensor tensor = counting({2, 3});
  write_npy(folder / "a", tensor);
  write_npz(folder / "b", {{"t", tensor}});
  write_npz(folder / "c", {});
  write_safetensors(folder / "d", {{"t", tensor}});
  expect_same(read_tensors(folder / "a").at(""), tensor);
  expect_same(read_tensors(folder / "b").at("t"), tensor);
  EXPECT_TRUE(read_tensors(folder / "c").empty());
  expect_same(read_tensors(folder / "d").at("t"), tensor);
  put(folder / "e", "\x1b]0;text");
  expect_error(
      ErrorCode::bad_file, [&] { read_tensors(folder / "e"); }, "e'", "'\\x1b]0;text'");
  put(folder / "e", "PK");
  expect_error(
      ErrorCode::bad_file, [&] { read_tensors(folder / "e"); }, "begins with 'PK'");
}

TEST(ViewsOf, KeepsTheNamesOrder) {
  TensorMap tensors;
  tensors.emplace("b", counting({2}));
  tensors.emplace("a", counting({1}));
  const NamedViews views = views_of(tensors);
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].first, "a");
  EXPECT_EQ(views[1].second.raw(), tensors.at("b").raw());
}

TEST(WriteFile, ReplacesTheContentAndLeavesNothingElse) {
  const Folder folder;
  write_file(folder / "x", "first, longer");
  write_file(folder / "x", std::string_view("\0second", 7));
  EXPECT_EQ(get(folder / "x"), std::string("\0second", 7));
  write_file(folder / "empty", "");
  EXPECT_EQ(fs::file_size(folder / "empty"), 0u);
  write_file(folder / std::string(255, 'n'), "as long as a name can be");
  EXPECT_EQ(folder.entries(), 3);
}

TEST(WriteFile, LeavesNothingWhereASignalEndsTheProcess) {
  const Folder folder;
  put(folder / "x", "old");
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    const int status = in_child([&] {
      std::signal(number, SIG_DFL);
      OutputFile file("write_file", folder / "x");
      file.write("new");
      raise(number);
      return true;
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number);
    EXPECT_EQ(get(folder / "x"), "old");
    EXPECT_EQ(folder.entries(), 1);
  }
}

TEST(WriteFile, GivesPermissionsAsTheUmaskSaysAndKeepsThose) {
  const Folder folder;
  const auto mode = [&] { return static_cast<unsigned>(fs::status(folder / "x").permissions()); };
  EXPECT_EQ(in_child([&] {
              umask(027);
              write_file(folder / "x", "");
              return true;
            }),
            0);
  EXPECT_EQ(mode(), 0640u);
  fs::permissions(folder / "x", static_cast<fs::perms>(0606));
  write_file(folder / "x", "new");
  EXPECT_EQ(mode(), 0606u);
}

TEST(WriteFile, KeepsSymbolicLinks) {
  const Folder folder;
  fs::create_directory(folder / "inner");
  put(folder / "inner/file", "old");
  fs::create_symlink("inner/file", folder / "link");
  fs::create_symlink("link", folder / "link_to_link");
  write_file(folder / "link_to_link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(get(folder / "inner/file"), "new");
  fs::create_symlink("inner/fresh", folder / "dangling");
  write_file(folder / "dangling", "new");
  EXPECT_EQ(get(folder / "inner/fresh"), "new");
  fs::create_symlink("circle", folder / "circle");
  expect_error(
      ErrorCode::bad_file, [&] { write_file(folder / "circle", ""); }, "write_file", "circle'", "links");
}

TEST(WriteFile, WritesPipesAndItsOwnDescriptors) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = get(folder / "pipe"); });
  write_file(folder / "pipe", "through");
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  // As `{ echo before; program -o /dev/stdout; echo after; } > out`.
  EXPECT_EQ(in_child([&] {
              std::FILE* out = std::freopen((folder / "out").c_str(), "w", stdout);
              if (write(fileno(out), "before ", 7) != 7) return false;
              write_file("/dev/stdout", "middle");
              return write(fileno(out), " after", 6) == 6;
            }),
            0);
  EXPECT_EQ(get(folder / "out"), "before middle after");
}

TEST(WriteFile, NamesWhatCanNotBeWritten) {
  const Folder folder;
  put(folder / "file", "");
  const auto refuse = [&](const std::string& name, const std::string& text) {
    expect_error(
        ErrorCode::bad_file, [&] { write_file(folder / name, "x"); }, "write_file: '", name, text);
  };
  refuse("", "names no file");
  refuse("missing/x", "No such file");
  refuse("file/x", "Not a directory");
  fs::create_directory(folder / "folder");
  refuse("folder", "is a directory");
  EXPECT_EQ(folder.entries(), 2);
}

TEST(WriteFile, NeedsPermission) {
  const Folder folder;
  put(folder / "x", "old");
  fs::permissions(folder / "x", static_cast<fs::perms>(0444));
  fs::permissions(folder.path(), fs::perms::all);
  const auto refused = [&](const std::string& name) {
    return in_child([&] {
      if (geteuid() == 0 && setuid(nobody) != 0) return false;
      return fails_with([&] { write_file(folder / name, "new"); }, "Permission denied");
    });
  };
  EXPECT_EQ(refused("x"), 0) << "a file that may not be written to is not replaced either";
  fs::permissions(folder.path(), static_cast<fs::perms>(0755));
  if (geteuid() == 0) {  // else the folder is this user's own
    EXPECT_EQ(refused("y"), 0);
  }
  EXPECT_EQ(get(folder / "x"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(WriteFile, NeedsNoFolderAboveTheWorkingOne) {
  const Folder folder;
  fs::create_directory(folder / "inner");
  fs::permissions(folder / "inner", fs::perms::all);
  EXPECT_EQ(in_child([&] {
              fs::current_path(folder / "inner");
              fs::permissions(folder.path(), fs::perms::none);
              if (geteuid() == 0 && setuid(nobody) != 0) return false;
              write_file("x", "new");
              return true;
            }),
            0);
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_EQ(get(folder / "inner/x"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "inner"), {}), 1);
}

TEST(WriteFile, LosesNothingWhenTheDeviceIsFull) {
  const Folder folder;
  const Tensor large = counting({1000, 1000});
  put(folder / "x", "old");
  const test::Reader writers[] = {[&](const auto& path) { write_npy(path, large); },
                                  [&](const auto& path) {
                                    write_npz(path, {{"t", large}});
                                  },
                                  [&](const auto& path) {
                                    write_safetensors(path, {{"t", large}});
                                  }};
  for (const auto& write : writers) {
    EXPECT_EQ(in_child([&] {
                std::signal(SIGXFSZ, SIG_IGN);  // so that the limit is an error, as a full device is
                const rlimit limit{1 << 20, 1 << 20};
                setrlimit(RLIMIT_FSIZE, &limit);
                return fails_with([&] { write(folder / "x"); }, "can't be written: File too large");
              }),
              0);
    EXPECT_EQ(get(folder / "x"), "old");
    EXPECT_EQ(folder.entries(), 1);
  }
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  fs::create_symlink("/dev/full", folder / "full");
  expect_error(
      ErrorCode::bad_file, [&] { write_npy(folder / "full", large); }, "full'", "No space left");
}

}  // namespace
}  // namespace attend
