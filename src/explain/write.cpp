#include <nlohmann/json.hpp>

#include "attend/explain.h"
#include "attend/io.h"
#include "core/message.h"
#include "explain/walk.h"

namespace attend::inline v1 {

namespace {

View view_of(const std::vector<std::int64_t>& ids) {
  return View(ids.data(), DType::i64, {static_cast<std::int64_t>(ids.size())});
}

NamedViews tensors_and_ids(const Trace& trace) {
  NamedViews out = trace.tensors();
  out.insert(out.begin(), {"ids", view_of(trace.ids)});
  if (!trace.ids_2.empty()) out.emplace_back("ids_2", view_of(trace.ids_2));
  return out;
}

// What is text: the metadata of a .safetensors file, and in .npz, which has no place for it, arrays of UTF-8.
std::map<std::string, std::string> texts(const Trace& trace) {
  std::map<std::string, std::string> out{{"made", made_json(trace.options)},
                                         {"tokens", nlohmann::json(trace.tokens).dump()}};
  if (!trace.preset.empty()) out["preset"] = trace.preset;
  if (!trace.tokens_2.empty()) out["tokens_2"] = nlohmann::json(trace.tokens_2).dump();
  return out;
}

void write_npz_trace(const std::string& path, const Trace& trace) {
  const std::map<std::string, std::string> strings = texts(trace);
  NamedViews arrays = tensors_and_ids(trace);
  for (const auto& [name, text] : strings)
    arrays.emplace_back(name, View(text.data(), DType::u8, {static_cast<std::int64_t>(text.size())}));
  write_npz(path, arrays);
}

}  // namespace

std::string to_svg(const Trace& trace, const TextStyle& style) {
  return svg_heat_map(weight_maps(trace, style.head), picture_title(trace));
}
std::string to_png(const Trace& trace, const TextStyle& style) {
  return png_heat_map(weight_maps(trace, style.head), picture_title(trace));
}

void write_trace(const std::string& path, const Trace& trace, const TextStyle& style) {
  check_text(trace);
  const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
  if (ends(".json")) return write_file(path, to_json(trace) + "\n");
  if (ends(".npz")) return write_npz_trace(path, trace);
  if (ends(".safetensors")) return write_safetensors(path, tensors_and_ids(trace), texts(trace));
  if (ends(".attend")) return to_recording(trace).save(path);
  if (ends(".svg")) return write_file(path, to_svg(trace, style));
  if (ends(".png")) return write_file(path, to_png(trace, style));
  if (ends(".html")) return write_file(path, to_html(trace, style));
  fail(ErrorCode::bad_value, "explain",
       "{} has no ending that says the format: .json, .npz, .safetensors, .attend, .svg, .png or .html", path);
}

}  // namespace attend::inline v1
