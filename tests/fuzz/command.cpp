// The command's line: one argument a line. It runs in a folder of its own, which has some files to read.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "attend/explain.h"
#include "cli/command.h"
#include "tests/fuzz/input.h"

using namespace attend;
namespace fs = std::filesystem;

namespace {

const char* const given[] = {"q.npy", "k.npy", "m.npy", "t.npz", "t.safetensors", "r.attend"};

// With files to read.
class Folder : public fuzz::Folder {
 public:
  Folder() {
    const Tensor q = Tensor::from({1, 2, 2}, {1, -2, 3, 0.5f}), k = Tensor::from({1, 3, 2}, {1, 2, 3, 4, 5, 6});
    const Tensor m({2, 3}, DType::boolean), list = k.view().to(DType::i64);
    write_npy(path() / "q.npy", q), write_npy(path() / "k.npy", k), write_npy(path() / "m.npy", m);
    write_npz(path() / "t.npz", {{"q", q}, {"k", k}, {"list", list}});
    write_safetensors(path() / "t.safetensors", {{"q", q}, {"bf16", k.view().to(DType::bf16)}}, {{"made", "here"}});
    to_recording(explain({.text = "a b a", .heads = 2})).save(path() / "r.attend");
  }
  void remove_written() const {
    for (const fs::path& file : fs::directory_iterator(path()))
      if (std::ranges::find(given, file.filename()) == std::end(given)) fs::remove(file);
  }
};

// While one lives, the process works in the folder, reads nothing from standard input and prints into memory.
class Stage {
 public:
  explicit Stage(const Folder& folder) : folder_(folder), before_(fs::current_path()) {
    fs::current_path(folder.path());
    std::swap(in_, stdin), std::swap(out_, stdout), std::swap(err_, stderr);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() {
    std::swap(in_, stdin), std::swap(out_, stdout), std::swap(err_, stderr);
    for (std::FILE* file : {in_, out_, err_}) std::fclose(file);
    std::free(printed_), std::free(told_);
    fs::current_path(before_);
    folder_.remove_written();
  }
  std::string_view told() {
    std::fflush(stderr);
    return {told_, told_size_};
  }

 private:
  const Folder& folder_;
  fs::path before_;
  char *printed_ = nullptr, *told_ = nullptr;
  std::size_t printed_size_ = 0, told_size_ = 0;
  std::FILE* in_ = std::fopen("/dev/null", "r");
  std::FILE* out_ = open_memstream(&printed_, &printed_size_);
  std::FILE* err_ = open_memstream(&told_, &told_size_);
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start <= text.size(); start += lines.back().size() + 1)
    lines.emplace_back(text.substr(start, text.find('\n', start) - start));
  return lines;
}

// Whether it stays in the folder, opens no browser, fetches nothing, and ends soon: numbers are small, or too large for
// anything to have that size.
bool is_harmless(const std::string& argument, bool computes) {
  if (argument.find('/') != std::string::npos || argument == "--open" || argument.starts_with("--get")) return false;
  std::size_t digits = 0;
  for (const char c : argument + " ") {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && digits > (computes ? 2 : 5) && digits < 15) return false;
    digits = digit ? digits + 1 : 0;
  }
  return true;
}

void run(std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  std::string name = "attend";
  argv.push_back(name.data());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  try {
    cli::run_line(static_cast<int>(argv.size()) - 1, argv.data());
  } catch (const cli::Failure& failure) {
    cli::complain(cli::Status::failed, failure.what());
  } catch (const Error& error) {
    cli::complain(cli::Status::bad_file, error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  std::vector<std::string> arguments = lines_of({reinterpret_cast<const char*>(data), size});
  const bool computes = arguments.front() != "plan";
  for (const std::string& argument : arguments)
    if (!is_harmless(argument, computes)) return -1;
  Stage stage(folder);
  run(arguments);
  const std::string_view told = stage.told();
  fuzz::require(told.empty() || told.starts_with("attend: "), "a message says whose it is");
  // A return is progress's, which is shown on a terminal.
  const auto moves = [](char c) { return (c >= 0 && c < 0x20 && c != '\n' && c != '\r') || c == 0x7f; };
  fuzz::require(std::ranges::none_of(told, moves), "a message moves the terminal's cursor");
  return 0;
}
