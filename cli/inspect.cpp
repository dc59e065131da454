#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "attend/io.h"
#include "cli/command.h"
#include "cli/tensor_file.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::vector<std::string> files;
  bool json = false;
  bool values = false;
};

// What one row of the table says.
struct Summary {
  std::string name;
  DType dtype;
  Dims shape;
  std::int64_t bytes = 0;
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  // Of the finite elements, as JSON numbers (whole for whole-number dtypes); null where there are none.
  Json min, mean, max;
};

template <class T>
void add_statistics(const View& flat, DType wide, Summary& summary) {
  // Converted piece by piece: a copy of a whole large tensor in double would not fit where the tensor just does.
  constexpr std::int64_t piece = 1 << 16;
  std::int64_t finite = 0;
  double sum = 0;
  T low{}, high{};
  for (std::int64_t start = 0; start < flat.count(); start += piece) {
    const Tensor values = flat.slice(0, start, std::min(start + piece, flat.count())).to(wide);
    for (std::int64_t i = 0; i < values.count(); ++i) {
      const T value = values.data<T>()[i];
      if constexpr (std::is_floating_point_v<T>) {
        summary.nan += std::isnan(value);
        summary.inf += std::isinf(value);
        if (!std::isfinite(value)) continue;
      }
      low = finite == 0 ? value : std::min(low, value);
      high = finite == 0 ? value : std::max(high, value);
      sum += static_cast<double>(value);
      ++finite;
    }
  }
  if (finite == 0) return;
  summary.min = low;
  summary.mean = sum / static_cast<double>(finite);
  summary.max = high;
}

Summary summarize(const std::string& name, const View& tensor) {
  Summary summary{.name = name, .dtype = tensor.dtype(), .shape = tensor.shape(), .min = {}, .mean = {}, .max = {}};
  summary.bytes = tensor.count() * size_of(tensor.dtype());
  const View flat = tensor.reshape({tensor.count()});
  if (is_floating(tensor.dtype()))
    add_statistics<double>(flat, DType::f64, summary);
  else
    add_statistics<std::int64_t>(flat, DType::i64, summary);
  return summary;
}

std::string number(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_number_integer()) return fmt::format("{}", value.get<std::int64_t>());
  return fmt::format("{:.6g}", value.get<double>());
}

// A column that is empty below its heading is left out.
std::string to_table(const std::vector<Summary>& summaries) {
  std::vector<Column> columns = {{"name", true}, {"dtype", true}, {"shape", true}, {"bytes"}, {"min"},
                                 {"mean"},       {"max"},         {"nan"},         {"inf"}};
  for (const Summary& s : summaries)
    add_line(columns, {printable(s.name), std::string(name_of(s.dtype)), s.shape.str(), fmt::format("{}", s.bytes),
                       number(s.min), number(s.mean), number(s.max), s.nan > 0 ? fmt::format("{}", s.nan) : "",
                       s.inf > 0 ? fmt::format("{}", s.inf) : ""});
  const auto is_empty = [](const std::string& cell) { return cell.empty(); };
  std::erase_if(columns, [&](const Column& column) { return std::ranges::all_of(column.cells, is_empty); });
  return fmt::format("  {}\n", fmt::join(lines_of(columns), "\n  "));
}

Json to_json(const Summary& s) {
  return {{"name", s.name},
          {"dtype", name_of(s.dtype)},
          {"shape", std::vector(s.shape.begin(), s.shape.end())},
          {"bytes", s.bytes},
          {"min", s.min},
          {"mean", s.mean},
          {"max", s.max},
          {"nan", s.nan},
          {"inf", s.inf}};
}

Safetensors read_file(const std::string& file) {
  if (std::filesystem::path(file).extension() == ".safetensors") return read_safetensors(file);
  return {read_tensors(file), {}};
}

void inspect(const std::string& argument, const InspectArguments& arguments, Json& report) {
  const TensorPath path = parse_tensor_path(argument);
  Safetensors content = read_file(path.file);
  if (path.name) {
    const std::string name = choose_tensor(path, content.tensors);
    std::erase_if(content.tensors, [&](const auto& entry) { return entry.first != name; });
  }
  std::vector<Summary> summaries;
  for (const auto& [name, tensor] : content.tensors) summaries.push_back(summarize(name, tensor));

  if (arguments.json) {
    Json entry = {{"file", path.file}, {"metadata", content.metadata}, {"tensors", Json::array()}};
    for (const Summary& summary : summaries) entry["tensors"].push_back(to_json(summary));
    report["files"].push_back(entry);
    return;
  }
  print(printable(path.file) + "\n");
  for (const auto& [key, value] : content.metadata) print(fmt::format("  {} = {}\n", printable(key), printable(value)));
  print(summaries.empty() ? "  no tensors\n" : to_table(summaries));
  if (!arguments.values) return;
  for (const auto& [name, tensor] : content.tensors)
    print(fmt::format("\n{}{}\n", name.empty() ? "" : printable(name) + " = ", format_tensor(tensor)));
}

void run(const InspectArguments& arguments) {
  if (arguments.json && arguments.values) throw UsageError("--json and --values can't stand together");
  Json report = {{"schema_version", 1}, {"files", Json::array()}};
  for (std::size_t i = 0; i < arguments.files.size(); ++i) {
    if (i > 0 && !arguments.json) print("\n");
    inspect(arguments.files[i], arguments, report);
  }
  // A file's name may hold bytes that are not UTF-8, and JSON may not.
  if (arguments.json) print(json_text(report, 2));
}

}  // namespace

Command add_inspect(App& root) {
  App* app = root.add_subcommand("inspect",
                                 "Show what tensor files hold. The table has a line for each tensor: its smallest, "
                                 "mean and largest finite element, and how many elements are NaN or infinite, if any.");
  app->examples(
      "attend inspect out.npy\n"
      "attend inspect qkv.npz:q --values\n"
      "attend inspect model.safetensors --json | jq '.files[].tensors[].name'");
  auto arguments = std::make_shared<InspectArguments>();
  app->add_option("FILE", arguments->files, "A .npy, .npz or .safetensors file; FILE:NAME takes one of its tensors")
      ->type_name("FILE")
      ->required();
  app->add_flag("--values", arguments->values, "Also print the elements, as PyTorch prints a tensor");
  app->add_flag("--json", arguments->json, "Print one JSON object instead of the table");
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
