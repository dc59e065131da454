// attend class: guided experiments as a folder of pages.
#include "attend/class_pages.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "attend/io.h"
#include "cli/command.h"
#include "cli/open.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

namespace fs = std::filesystem;

struct ClassArguments {
  std::string folder;
  std::string minilm = "minilm", smollm2 = "smollm2", with;
  bool open = false;
};

// What stands there may be somebody's own: pages are written beside it, and a folder of another class over.
void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    throw Failure(fmt::format("-o {}: no folder can be made there: {}", folder.string(),
                              error ? error.message() : "it is a file"));
}

void run(const ClassArguments& arguments) {
  const fs::path folder = arguments.folder;
  ClassOptions options{
      .minilm = arguments.minilm, .smollm2 = arguments.smollm2, .with_smollm2 = !arguments.with.empty()};
  make_folder(folder);
  std::int64_t files = 0, size = 0;
  {
    Progress progress;
    options.progress = progress.stage();
    class_pages(options, [&](const std::string& name, const std::string& html) {
      writing([&] { write_file((folder / name).string(), html); });
      ++files, size += std::ssize(html);
    });
  }
  tell(fmt::format("attend: wrote {} files of {} to {}; begin with {}", files, bytes(size), folder.string(),
                   (folder / "index.html").string()));
  if (arguments.open) open_in_browser((folder / "index.html").string());
}

}  // namespace

Command add_class(App& root) {
  App* app = root.add_subcommand(
      "class",
      "Make a class on attention: a folder of guided experiments on real models, which opens without a network. The "
      "numbers in it are computed now, with the models that attend model --get fetches.");
  app->examples(
      "attend model --get minilm && attend model --get smollm2\n"
      "attend class -o class --open\n"
      "attend class -o class --with smollm2");
  auto arguments = std::make_shared<ClassArguments>();
  app->add_option("-o,--output", arguments->folder,
                  "The folder to write to; pages of an earlier class in it are replaced")
      ->type_name("FOLDER")
      ->required();
  choose_one(app->add_option("--with", arguments->with,
                             "Add a page with SmolLM2 itself in it (125 MB). Its experiments go on there with any "
                             "text; without this page they show recorded passes only"),
             "smollm2");
  app->add_option("--minilm", arguments->minilm, "all-MiniLM-L6-v2: a folder, a .gguf file or a name (default: minilm)")
      ->type_name("FILE");
  app->add_option("--smollm2", arguments->smollm2, "SmolLM2-135M-Instruct, in the same forms (default: smollm2)")
      ->type_name("FILE");
  app->add_flag("--open", arguments->open, "Open its first page in the browser");
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
