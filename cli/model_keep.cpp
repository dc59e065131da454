// What `model --place` keeps of a pass, and writes as arrays.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "attend/tensor_files.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/page.h"

namespace attend::cli {
namespace {

// "z.23", or of all layers "z".
Keep place_of(const std::string& text) {
  const std::size_t dot = text.find('.');
  const std::string name = text.substr(0, dot);
  const auto places = model_places();
  const auto at = std::ranges::find(places, name, [](ModelPlace place) { return name_of(place); });
  if (at == places.end()) {
    std::string known;
    for (const ModelPlace place : places) known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(place));
    throw UsageError(fmt::format("--place: no model has a place '{}', expected one of {}", name, known));
  }
  if (dot == std::string::npos) return {*at};
  std::int64_t layer = 0;
  const char *begin = text.data() + dot + 1, *end = text.data() + text.size();
  if (const auto [last, error] = std::from_chars(begin, end, layer); error != std::errc() || last != end)
    throw UsageError(fmt::format("--place: '{}', expected a place, or a place in a layer such as {}.3", text, name));
  return {*at, layer};
}

}  // namespace

bool has_arrays(const std::string& file) {
  return ending_of(file) == ".npz" || ending_of(file) == ".safetensors";
}

void check_places(const ModelArguments& x) {
  const bool arrays = std::ranges::any_of(x.files, has_arrays);
  if (arrays && x.places.empty())
    throw UsageError("-o: .npz and .safetensors hold what --place names, and --place is not given");
  if (!arrays && !x.places.empty()) throw UsageError("--place: nothing uses it without -o x.npz or -o x.safetensors");
}

std::vector<Keep> places_of(const ModelArguments& x) {
  std::vector<Keep> keep;
  keep.reserve(x.places.size());
  for (const std::string& each : x.places) keep.push_back(place_of(each));
  return keep;
}

void write_kept(const std::string& file, const Computed& x, const ModelArguments& arguments) {
  NamedViews arrays;
  for (std::size_t n = 0; n < x.kept.size(); ++n) arrays.emplace_back(arguments.places[n], x.kept[n].view());
  writing([&] { ending_of(file) == ".npz" ? write_npz(file, arrays) : write_safetensors(file, arrays); });
}

}  // namespace attend::cli
