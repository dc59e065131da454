#include "attend/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>

#include "attend/io.h"
#include "cli/command.h"
#include "cli/tensor_file.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

struct PictureArguments {
  std::string weights;
  std::string mask;
  std::string rows, columns;
  std::string scale = "linear";
  std::string title;
  TextForm form;
  std::vector<std::string> files;
};

std::vector<std::string> lines_of(const std::string& file) {
  std::istringstream stream(read_text(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

// The lines of a file of that name, else what stands between commas.
std::vector<std::string> read_words(const std::string& option, const std::string& given, std::int64_t count) {
  std::vector<std::string> words;
  std::error_code error;
  if (given.empty()) return words;
  if (std::filesystem::exists(given, error)) {
    words = lines_of(given);
  } else {
    for (std::size_t at = 0; at <= given.size();) {
      const std::size_t comma = std::min(given.find(',', at), given.size());
      words.push_back(given.substr(at, comma - at));
      at = comma + 1;
    }
    if (words.size() == 1 && count != 1)
      throw UsageError(fmt::format("{}: no file '{}'; put commas between words, as in the,cat,sat", option, given));
  }
  if (std::ssize(words) != count) throw UsageError(fmt::format("{}: {} words for {}", option, words.size(), count));
  return words;
}

void print_maps(const PictureArguments& arguments, const std::vector<HeatMap>& maps) {
  print(terminal_heat_maps(maps, arguments.title, style_of(arguments.form)));
}

void run(const PictureArguments& arguments) {
  const Tensor weights = read_tensor(arguments.weights);
  const Tensor mask = arguments.mask.empty() ? Tensor() : read_tensor(arguments.mask);
  HeatMap like;
  like.scale = picture_scale(arguments.scale);
  std::vector<HeatMap> maps =
      heat_maps(weights, like, arguments.mask.empty() ? std::nullopt : std::optional(mask.view()));
  const auto rows = read_words("--rows", arguments.rows, weights.view().size(-2));
  const auto columns = read_words("--columns", arguments.columns, weights.view().size(-1));
  for (HeatMap& map : maps) {
    map.row_labels = rows;
    map.column_labels = columns;
  }
  for (const std::string& file : arguments.files) {
    const std::string bytes =
        file.ends_with(".png") ? png_heat_map(maps, arguments.title) : svg_heat_map(maps, arguments.title);
    writing([&] { write_file(file, bytes); });
    warn_of_missing_characters(file, fmt::format("{}{}{}", arguments.title, fmt::join(maps[0].row_labels, ""),
                                                 fmt::join(maps[0].column_labels, "")));
    tell("attend: wrote " + file);
  }
  if (arguments.files.empty()) print_maps(arguments, maps);
}

}  // namespace

Command add_picture(App& root) {
  App* app = root.add_subcommand("picture",
                                 "Draw attention weights from a file as heat maps, one for each head. Pairs that are "
                                 "NaN or -inf count as hidden and are hatched.");
  app->examples(
      "attend picture w.npy\n"
      "attend picture w.npy --rows the,cat,sat --columns the,cat,sat -o w.svg\n"
      "attend picture life.npz:weights --scale sqrt --title \"Life is short\" -o w.png\n"
      "attend picture heads.safetensors:layer.3 --mask mask.npy --rows tokens.txt");
  auto arguments = std::make_shared<PictureArguments>();
  app->add_option(
         "FILE", arguments->weights,
         "Weights, [Tq,Tk] or [H,Tq,Tk]: a .npy, .npz or .safetensors file; FILE:NAME takes one of its tensors")
      ->type_name("FILE")
      ->required();
  file_ending(app->add_option("-o,--output", arguments->files,
                              "Write to FILE instead of the terminal: .svg or .png. May be given several times"),
              {".svg", ".png"});
  choose_one(app->add_option("--scale", arguments->scale,
                             "How values map to colours: sqrt and log show small weights beside a large one, diverging "
                             "is for values on both sides of 0 (default: linear)"),
             "linear|sqrt|log|diverging");
  app->add_option("--title", arguments->title, "Title above the picture");
  app->add_option("--rows", arguments->rows,
                  "The queries' words: a list such as the,cat,sat, or a file with one word on each line")
      ->type_name("FILE");
  app->add_option("--columns", arguments->columns, "The keys' words, in the same form")->type_name("FILE");
  app->add_option("--mask", arguments->mask, "bool, broadcast to the weights: false where a query does not see a key")
      ->type_name("FILE");
  add_text_form(*app, arguments->form);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
