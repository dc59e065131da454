// A recording as a .safetensors file: numbers as tensors, all else as JSON in its metadata.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "attention/compute.h"
#include "core/message.h"
#include "core/utf8.h"
#include "io/json_member.h"
#include "recording/coarser.h"
#include "recording/recording.h"
#include "summary/head_scores.h"

namespace attend::inline v1 {

namespace {

using nlohmann::json;

constexpr std::string_view metadata_key = "attend.recording";
constexpr std::int64_t version = 2;
constexpr std::int64_t scores_of_version_1 = 8;

// ---- Writing ----

json to_json(const Range& range) {
  return {range.begin, range.end};
}

json to_json(const RecordedCall& call) {
  json out = {{"queries", to_json(call.queries)}, {"keys", to_json(call.keys)}, {"scale", call.scale}};
  if (call.window.left >= 0 || call.window.right >= 0) out["window"] = {call.window.left, call.window.right};
  if (call.offset) out["offset"] = *call.offset;
  for (const auto& [name, number] : call.numbers) out[name] = number;
  if (!call.tensors.empty()) out["tensors"] = call.tensors;
  return out;
}

json to_json(const RecordedLayer& x) {
  json out = {{"name", x.name},
              {"kind", x.kind},
              {"dtype", std::string(name_of(x.dtype))},
              {"batch", x.batch},
              {"heads", x.heads},
              {"kv_heads", x.kv_heads},
              {"head_size", x.head_size},
              {"queries", x.queries},
              {"keys", x.keys},
              {"top", x.top},
              {"map", {{"blocks", {x.row_blocks, x.column_blocks}}, {"range", {x.row_range, x.column_range}}}},
              {"calls", json::array()}};
  for (const auto& [name, has] : {std::pair("distance", x.has_distance),
                                  {"sinks", x.has_sinks},
                                  {"tokens", x.has_tokens},
                                  {"qk", x.has_qk},
                                  {"key_sizes", x.has_key_sizes}}) {
    if (has) out["has"].push_back(name);
  }
  for (const RecordedCall& call : x.calls) out["calls"].push_back(to_json(call));
  return out;
}

// ---- Reading ----

std::vector<std::vector<std::string>> read_tokens(const Member& root, const char* name) {
  std::vector<std::vector<std::string>> tokens;
  if (!root.has(name)) return tokens;
  for (const Member& item : root[name].list()) tokens.push_back(item.texts());
  return tokens;
}

Range read_range(const Member& from, std::int64_t size) {
  const auto [begin, end] = from.two(0, size);
  if (end < begin) fail_at(from.place(), "{} to {} run backwards", begin, end);
  return {begin, end};
}

RecordedCall read_call(const Member& from, const RecordedLayer& layer) {
  RecordedCall call{read_range(from["queries"], layer.queries), read_range(from["keys"], layer.keys),
                    from["scale"].number()};
  if (from.has("window")) std::tie(call.window.left, call.window.right) = from["window"].two(-1);
  if (from.has("causal") && from["causal"].truth()) call.window.right = 0;  // as older files say it
  if (from.has("offset")) call.offset = from["offset"].whole(-Member::most);
  for (const NumberOption& option : number_options()) {
    const std::string name(option.name);
    if (from.has(name.c_str())) call.numbers[name] = from[name.c_str()].number();
  }
  if (from.has("tensors")) call.tensors = from["tensors"].texts();
  const auto options = tensor_options();
  for (const std::string& name : call.tensors) {
    const auto option = std::ranges::find(options, name, &TensorOption::name);
    if (option == options.end() || option->shape == TensorOption::Shape::starts)
      fail_at(from.place().in("tensors"), "{} is not an option that a call is recorded with", quote(name));
  }
  return call;
}

DType read_dtype(const Member& from) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    if (from.text() == name_of(dtype)) return dtype;
  }
  fail_at(from.place(), "{} is not f32, f64, bf16 or f16", quote(from.text()));
}

// Files that say nothing are of exact ones.
Activations read_activations(const Member& root) {
  if (!root.has("activations")) return Activations::exact;
  const Member said = root["activations"];
  if (const auto named = activations_named(said.text())) return *named;
  fail_at(said.place(), "{} is not exact, fast or int8", quote(said.text()));
}

// Rows follow each other from call to call.
void read_calls(const Member& from, RecordedLayer& layer) {
  std::int64_t next = 0;
  for (const Member& each : from.list()) {
    layer.calls.push_back(read_call(each, layer));
    const Range& queries = layer.calls.back().queries;
    if (queries.begin != next) fail_at(each.place(), "queries begin at {}, expected {}", queries.begin, next);
    next = queries.end;
  }
  if (next != layer.queries) fail_at(from.place(), "of {} queries, {} are there", layer.queries, next);
}

// Every index has a block: index i is in block floor(i blocks / range).
void check_map(const Place& place, std::int64_t blocks, std::int64_t range, std::int64_t indices) {
  if (range >= std::max(blocks, indices) && (blocks > 0 || indices == 0)) return;
  fail_at(place, "{} blocks for a range of {} do not hold {} indices", blocks, range, indices);
}

RecordedLayer read_layer(const Member& from) {
  RecordedLayer layer{.name = from["name"].text(), .kind = from["kind"].text(), .dtype = read_dtype(from["dtype"])};
  if (layer.kind != "self" && layer.kind != "cross") {
    fail_at(from.place().in("kind"), "{} is neither self nor cross", quote(layer.kind));
  }
  layer.batch = from["batch"].whole(0), layer.kv_heads = from["kv_heads"].whole(1);
  layer.head_size = from["head_size"].whole(1), layer.top = from["top"].whole(1);
  layer.queries = from["queries"].whole(0), layer.keys = from["keys"].whole(0);
  for (const Member& head : from["heads"].list()) {
    layer.heads.push_back(head.whole(layer.heads.empty() ? 0 : layer.heads.back() + 1));
  }
  if (layer.heads.empty() || std::ssize(layer.heads) % layer.kv_heads != 0) {
    fail_at(from.place(), "{} heads share {} key heads", layer.heads.size(), layer.kv_heads);
  }
  std::tie(layer.row_blocks, layer.column_blocks) = from["map"]["blocks"].two(0);
  std::tie(layer.row_range, layer.column_range) = from["map"]["range"].two(0);
  check_map(from["map"].place(), layer.row_blocks, layer.row_range, layer.queries);
  check_map(from["map"].place(), layer.column_blocks, layer.column_range, layer.keys);
  if (from.has("has")) {
    for (const Member& each : from["has"].list()) {
      const std::string name = each.text();
      layer.has_distance |= name == "distance", layer.has_sinks |= name == "sinks";
      layer.has_tokens |= name == "tokens", layer.has_qk |= name == "qk";
      layer.has_key_sizes |= name == "key_sizes";
    }
  }
  read_calls(from["calls"], layer);
  return layer;
}

class TensorCheck {
 public:
  TensorCheck(const Place& place, const SafetensorsFile& file) : place_(place), file_(file) {}

  // A tensor that must be there; no shape: of any.
  void expect(const std::string& name, const LayerTensor* of = nullptr) {
    const SafetensorsFile::Entry* entry = file_.find(name);
    if (!entry) fail_at(place_, "tensor {} is missing", quote(name));
    if (of && (entry->dtype != of->dtype || entry->shape != of->shape)) {
      fail_at(place_, "tensor {} is {} {}, expected {} {}", quote(name), entry->dtype, entry->shape, of->dtype,
              of->shape);
    }
    expected_.insert(name);
  }
  void optional(const std::string& name) {
    const SafetensorsFile::Entry* entry = file_.find(name);
    if (!entry) return;
    if (entry->dtype != DType::i64 || entry->shape.rank() != 2) {
      fail_at(place_, "tensor {} is {} {}, expected i64 [B,T]", quote(name), entry->dtype, entry->shape);
    }
    expected_.insert(name);
  }
  void nothing_else() const {
    for (const auto& entry : file_.entries()) {
      if (!expected_.contains(entry.name)) fail_at(place_, "tensor {} belongs to no layer", quote(entry.name));
    }
  }

 private:
  const Place& place_;
  const SafetensorsFile& file_;
  std::set<std::string> expected_;
};

}  // namespace

// What a file holds.
struct Recording::Contents {
  TensorMap read;  // of a recording that was opened: its numbers are in its file
  TensorMap made;  // in place of what the recording has
  NamedViews tensors;
  std::map<std::string, std::string> metadata;
};

Recording::Contents Recording::contents(const char* function, const LeftOut& left_out) const {
  json root = {{"version", version}, {"model", model}, {"layers", json::array()}};
  if (activations != Activations::exact) root["activations"] = std::string(name_of(activations));
  const auto check_text = [&](const std::string& text, const char* what) { decode_utf8(text, {function, what}); };
  check_text(model, "model");
  for (const auto& [name, items] : {std::pair("tokens", &tokens), {"decoder_tokens", &decoder_tokens}}) {
    for (const auto& item : *items)
      for (const std::string& token : item) check_text(token, name);
    if (!items->empty()) root[name] = *items;
  }
  Contents out;
  std::vector<RecordedLayer> layers = layers_;
  std::vector<std::string> without;  // a name, or with a point at its end what names begin with
  for (const std::int64_t layer : left_out.maps) {
    (void)at(layer);
    for (auto& [name, tensor] : coarser_maps(*this, layer, left_out.most, layers[static_cast<std::size_t>(layer)])) {
      without.push_back(tensor_name(layer, name));
      out.made.emplace(without.back(), std::move(tensor));
    }
  }
  for (const std::int64_t layer : left_out.qk) {
    (void)at(layer);
    layers[static_cast<std::size_t>(layer)].has_qk = false;
    // The options that were tensors, too.
    for (const char* name : {"q", "k", "calls."}) without.push_back(tensor_name(layer, name));
  }
  for (const RecordedLayer& layer : layers) root["layers"].push_back(to_json(layer));
  out.metadata.emplace(metadata_key, root.dump());
  const auto kept = [&](const std::string& name) {
    return std::ranges::none_of(
        without, [&](const std::string& x) { return x.ends_with('.') ? name.starts_with(x) : name == x; });
  };
  if (file_) {
    for (const auto& entry : file_->tensors.entries()) {
      if (!tensors_.contains(entry.name) && kept(entry.name))
        out.read.emplace(entry.name, std::move(*find(entry.name)));
    }
  }
  for (const TensorMap* from : {&tensors_, &std::as_const(out.read)})
    for (const auto& [name, tensor] : *from)
      if (kept(name)) out.tensors.emplace_back(name, tensor);
  for (const auto& [name, tensor] : out.made) out.tensors.emplace_back(name, tensor);
  return out;
}

void Recording::save(const std::filesystem::path& path) const {
  constexpr const char* function = "Recording::save";
  const Contents file = contents(function, {});
  try {
    write_safetensors(path, file.tensors, file.metadata);
  } catch (const Error& error) {
    throw Error(error.code(), function, error.detail());
  }
}

std::string Recording::to_bytes(const LeftOut& left_out) const {
  constexpr const char* function = "Recording::to_bytes";
  const Contents file = contents(function, left_out);
  return with_memory(function, {}, {}, [&] { return safetensors_bytes(function, file.tensors, file.metadata); });
}

// Version 1 has the first of today's scores; the others are not known.
void Recording::widen_scores() {
  for (std::int64_t n = 0; n < std::ssize(layers_); ++n) {
    const std::string name = tensor_name(n, "scores");
    const Tensor few = *find(name);
    Tensor all({few.size(0), few.size(1), score_count}, DType::f64);
    std::fill_n(all.data<double>(), all.count(), NAN);
    all.view().slice(2, 0, scores_of_version_1).copy_from(few);
    tensors_.insert_or_assign(name, std::move(all));
  }
}

Recording Recording::load(const std::filesystem::path& path) {
  constexpr const char* function = "Recording::load";
  return with_memory(function, {}, {}, [&] {
    Recording recording;
    const auto file = std::make_shared<const File>(function, path);
    recording.file_ = file;
    const Place& place = file->input.place();
    const auto found = file->tensors.metadata().find(std::string(metadata_key));
    if (found == file->tensors.metadata().end()) {
      fail_at(place, "is not a recording: its metadata has no {}", metadata_key);
    }
    const Place inner = place.in(metadata_key);
    const json value = parse_json(inner, found->second);
    const Member root(inner, value);
    const std::int64_t written = root["version"].whole(1);
    if (written > version)
      fail_at(inner, "version {}, expected 1 to {}: another version of attend wrote this file", written, version);
    recording.model = root["model"].text();
    recording.activations = read_activations(root);
    recording.tokens = read_tokens(root, "tokens"), recording.decoder_tokens = read_tokens(root, "decoder_tokens");
    TensorCheck check(place, file->tensors);
    check.optional("ids"), check.optional("decoder_ids");
    std::set<std::string> names;
    for (const Member& each : root["layers"].list()) {
      const RecordedLayer& layer = recording.layers_.emplace_back(read_layer(each));
      if (!names.insert(layer.name).second) fail_at(each.place(), "name {} comes twice", quote(layer.name));
      const std::int64_t n = std::ssize(recording.layers_) - 1;
      for (LayerTensor tensor : tensors_of(layer)) {
        if (tensor.name == "scores" && written == 1) tensor.shape[2] = scores_of_version_1;
        check.expect(tensor_name(n, tensor.name), &tensor);
      }
      for (std::size_t call = 0; call < layer.calls.size() && layer.has_qk; ++call) {
        for (const std::string& name : layer.calls[call].tensors) {
          check.expect(tensor_name(n, fmt::format("calls.{}.{}", call, name)));
        }
      }
    }
    check.nothing_else();
    if (written == 1) recording.widen_scores();
    return recording;
  });
}

}  // namespace attend::inline v1
