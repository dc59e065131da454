#include "cli/show.h"

#include <filesystem>
#include <memory>

#include "attend/io.h"
#include "cli/command.h"
#include "cli/page.h"

namespace attend::cli {
namespace {

struct ShowCommand {
  std::string file;
  ShowArguments what;
  std::vector<std::string> files;
  PageArguments page;
};

std::string to_json(const Selection& selection, const ShowArguments& arguments) {
  return printable_json(heads_json(selection.recording, selection.item, chosen_heads(selection, arguments),
                                   chosen_query(selection, arguments)));
}

void write(const std::string& file, const Selection& selection, const ShowCommand& arguments) {
  if (ending_of(file) == ".json")
    writing([&] { write_file(file, to_json(selection, arguments.what)); });
  else if (is_page(file))
    write_page(file, page_of(selection, arguments.page, std::filesystem::path(arguments.file).filename().string()));
  else
    write_shown(file, selection, arguments.what);
  tell("attend: wrote " + file);
}

void run(ShowCommand& arguments) {
  check_page(arguments.page, arguments.files);
  complete_files(arguments.page, "show.html", arguments.files);
  check_show(arguments.what, arguments.files);
  const Recording recording = Recording::load(arguments.file);
  const Selection selection = select(recording, arguments.what);
  if (arguments.what.json) return print(to_json(selection, arguments.what));
  if (arguments.what.csv) return print(csv_of(selection, arguments.what));
  for (const std::string& file : arguments.files) write(file, selection, arguments);
  open_page(arguments.page, arguments.files);
  if (!arguments.files.empty()) return;
  print(overview(selection, style_of(arguments.what.form).width) + "\n" + shown_text(selection, arguments.what));
}

}  // namespace

Command add_show(App& root) {
  App* app = root.add_subcommand(
      "show",
      "Show what a model's heads attended to, from a recording: a line for each head, one head's map, or one "
      "query's top keys.");
  app->examples(
      "attend show x.attend --sort induction --limit 10\n"
      "attend show x.attend --head 0.3 --query 5\n"
      "attend show x.attend --csv > heads.csv\n"
      "attend show x.attend -o heads.svg\n"
      "attend show x.attend --open");
  auto arguments = std::make_shared<ShowCommand>();
  app->add_option("FILE", arguments->file, "A recording, as attend explain -o x.attend writes it")
      ->type_name("FILE")
      ->required();
  app->begin_group("What to show");
  whole_number(app->add_option("--item", arguments->what.item, "Which text of a batch, from 0 (default: 0)"), 0);
  add_show_what(*app, arguments->what);
  app->begin_group("How to show it");
  file_ending(
      app->add_option("-o,--output", arguments->files,
                      "Write to FILE instead, in the format of its ending: .html (a page with every head), .svg or "
                      ".png (maps of all heads, of one layer or of one head, or a strip), .npy (the numbers of a layer "
                      "or a head), .csv (a line for each head) or .json. May be given several times"),
      {".html", ".svg", ".png", ".npy", ".csv", ".json"});
  add_page(*app, arguments->page);
  add_show_form(*app, arguments->what);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
