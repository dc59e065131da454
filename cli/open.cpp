#include "cli/open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/command.h"

extern char** environ;

namespace attend::cli {
namespace {

namespace fs = std::filesystem;

#ifdef __APPLE__
constexpr const char* desktop_opener = "open";
#else
constexpr const char* desktop_opener = "xdg-open";
#endif

// $BROWSER is a list with colons between. What is more than a program's name ("w3m %s") is not found here, and is
// xdg-open's to read.
std::vector<std::string> openers() {
  std::vector<std::string> out;
  std::string_view list = environment("BROWSER");
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    if (end > 0) out.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  out.emplace_back(desktop_opener);
  return out;
}

// Starts the program without a shell, in a session of its own, so that a browser outlives the terminal and does not
// write to it. Returns 0 or what went wrong.
int start(std::string program, std::string argument, pid_t& child) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  for (const int stream : {0, 1, 2}) posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_RDWR, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  char* arguments[] = {program.data(), argument.data(), nullptr};
  const int error = posix_spawnp(&child, program.c_str(), &files, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

// An opener ends at once; one that goes on is the browser itself, and is left to itself.
bool has_failed(pid_t child) {
  constexpr auto step = std::chrono::milliseconds(20), patience = std::chrono::milliseconds(3000);
  for (auto waited = step; waited < patience; waited += step) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) != 0) return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    std::this_thread::sleep_for(step);
  }
  return false;
}

}  // namespace

std::optional<fs::path> cache_folder() {
  const fs::path folder = environment("XDG_CACHE_HOME");
  if (folder.is_absolute()) return folder / "attend";  // so the XDG Base Directory Specification has it
  if (environment("HOME").empty()) return std::nullopt;
  return fs::path(environment("HOME")) / ".cache" / "attend";
}

std::string cache_file(const std::string& name) {
  const std::optional<fs::path> folder = cache_folder();
  if (!folder) throw Failure("neither XDG_CACHE_HOME nor HOME says where the page should go: say it with -o FILE.html");
  std::error_code error;
  fs::create_directories(*folder, error);
  if (error) throw Failure(fmt::format("{}: {}", folder->string(), error.message()));
  return (*folder / name).string();
}

void open_in_browser(const std::string& path) {
  const std::string file = fs::absolute(path).string();
  for (const std::string& program : openers()) {
    pid_t child = 0;
    if (start(program, file, child) == 0 && !has_failed(child)) return;
  }
  tell(fmt::format("attend: no browser opened the page (tried $BROWSER and {}): open {} yourself", desktop_opener,
                   file));
}

}  // namespace attend::cli
