#include "recording/recording.h"

#include <algorithm>

#include "core/message.h"
#include "kernels/rules.h"
#include "recording/calls.h"
#include "recording/layer_recorder.h"
#include "summary/head_scores.h"
#include "summary/summary.h"

namespace attend::inline v1 {

namespace {

const std::vector<std::vector<std::string>>& fitting(const std::vector<std::vector<std::string>>& tokens,
                                                     const RecordedLayer& layer, std::int64_t count) {
  static const std::vector<std::vector<std::string>> none;
  const bool fit = std::ssize(tokens) == layer.batch &&
                   std::ranges::all_of(tokens, [&](const auto& item) { return std::ssize(item) == count; });
  return fit ? tokens : none;
}

void check_weighed_by(const char* function, const RecordedLayer& layer, WeighedBy by) {
  if (by == WeighedBy::weight || layer.has_key_sizes) return;
  fail(ErrorCode::bad_value, function, "layer {} was recorded by weight only: record with key_sizes", layer.name);
}

bool of_decoder(const RecordedLayer& layer) {
  return layer.name.starts_with("decoder.");
}

}  // namespace

Range within(const Range& wanted, const Range& range) {
  const std::int64_t begin = std::clamp(wanted.begin, range.begin, range.end);
  return {begin - range.begin, std::clamp(wanted.end, begin, std::max(begin, range.end)) - range.begin};
}

std::string head_name(std::string_view layer, std::int64_t head) {
  constexpr std::string_view self = ".self";
  const std::string_view number = layer.substr(0, layer.size() - std::min(layer.size(), self.size()));
  const bool one_stack =
      layer.ends_with(self) && !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  return fmt::format("{}.{}", one_stack ? number : layer, head);
}

std::string tensor_name(std::int64_t layer, std::string_view name) {
  return fmt::format("layers.{}.{}", layer, name);
}

std::vector<LayerTensor> tensors_of(const RecordedLayer& x) {
  const DType dtype = statistics_dtype(x.dtype);
  const std::int64_t B = x.batch, H = std::ssize(x.heads);
  const Dims rows{B, H, x.queries};
  // In the order of SummaryStatistic::Shape.
  const Dims shapes[] = {{B, H, x.queries, x.top}, rows, {B, H, x.keys}, {B, H, x.row_blocks, x.column_blocks}};
  std::vector<LayerTensor> all = {{"lse", dtype, rows}, {"lse_low", dtype, rows}};
  for (const SummaryStatistic& statistic : summary_statistics()) {
    if (!has_statistic(x, statistic)) continue;
    const DType of = statistic.is_index() ? DType::i64 : dtype;
    all.push_back({statistic.name, of, shapes[static_cast<int>(statistic.shape)]});
  }
  all.push_back({"scores", DType::f64, Dims{B, H, score_count}});
  if (x.has_key_sizes) {
    all.push_back({"carried_scores", DType::f64, Dims{B, H, score_count}});
    all.push_back({"key_sizes", dtype, Dims{B, H, x.keys}});
  }
  if (x.has_qk) {
    all.push_back({"q", x.dtype, {B, H, x.queries, x.head_size}});
    all.push_back({"k", x.dtype, {B, x.kv_heads, x.keys, x.head_size}});
  }
  return all;
}

void Recording::set_ids(const std::optional<View>& ids, const std::optional<View>& decoder_ids) {
  for (const auto& [name, given] : {std::pair("ids", ids), {"decoder_ids", decoder_ids}}) {
    if (!given) continue;
    if (given->dtype() != DType::i64 || given->rank() != 2) {
      fail(ErrorCode::bad_value, "Recording::set_ids", "{} are {} {}, expected i64 [B,T]", name, given->dtype(),
           given->shape());
    }
    tensors_.insert_or_assign(name, given->clone());
  }
}

const RecordedLayer& Recording::at(std::int64_t layer) const {
  if (layer < 0 || layer >= std::ssize(layers_)) {
    fail(ErrorCode::bad_value, "Recording", "layer {}, expected 0 to {}", layer, std::ssize(layers_) - 1);
  }
  return layers_[static_cast<std::size_t>(layer)];
}

std::int64_t Recording::layer(std::string_view name) const {
  const auto found = std::ranges::find(layers_, name, &RecordedLayer::name);
  if (found != layers_.end()) return found - layers_.begin();
  constexpr std::size_t most = 8;
  std::string names;
  for (std::size_t n = 0; n < std::min(most, layers_.size()); ++n) names += (n > 0 ? ", " : "") + layers_[n].name;
  fail(ErrorCode::bad_value, "Recording", "layer {}, expected one of {}{}", quote(name), names,
       layers_.size() > most ? fmt::format(", ... ({} layers)", layers_.size()) : "");
}

std::int64_t Recording::head(std::int64_t layer, std::int64_t number) const {
  const auto& heads = at(layer).heads;
  const auto found = std::ranges::find(heads, number);
  if (found != heads.end()) return found - heads.begin();
  const bool all = !heads.empty() && heads.back() == std::ssize(heads) - 1;
  fail(ErrorCode::bad_value, "Recording", "layer {}: head {}, expected {}", at(layer).name, number,
       all ? fmt::format("0 to {}", heads.back()) : fmt::format("one of {}", fmt::join(heads, ", ")));
}

const std::vector<std::vector<std::string>>& Recording::query_tokens(std::int64_t layer) const {
  const RecordedLayer& x = at(layer);
  const bool decoder = !decoder_tokens.empty() && of_decoder(x);
  return fitting(decoder ? decoder_tokens : tokens, x, x.queries);
}

const std::vector<std::vector<std::string>>& Recording::key_tokens(std::int64_t layer) const {
  const RecordedLayer& x = at(layer);
  const bool decoder = !decoder_tokens.empty() && of_decoder(x) && x.kind == "self";
  return fitting(decoder ? decoder_tokens : tokens, x, x.keys);
}

Recording::Size Recording::size() const {
  Size size;
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    for (const LayerTensor& x : tensors_of(layers_[n])) {
      const std::int64_t bytes = element_count(x.shape) * size_of(x.dtype);
      size.all += bytes;
      if (x.name == "q" || x.name == "k") size.qk += bytes;
    }
  }
  return size;
}

std::optional<Tensor> Recording::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second.clone();
  const SafetensorsFile::Entry* entry = file_ ? file_->tensors.find(name) : nullptr;
  if (!entry) return std::nullopt;
  file_->input.check_unchanged();
  Tensor tensor = file_->tensors.read(*entry);
  file_->input.check_unchanged();
  return tensor;
}

Tensor Recording::rows_of(std::int64_t layer, std::string_view name, std::int64_t item, std::int64_t head,
                          const Range& rows) const {
  const std::string key = tensor_name(layer, name);
  if (const auto found = tensors_.find(key); found != tensors_.end()) {
    return found->second.view()
        .slice(0, item, item + 1)
        .slice(1, head, head + 1)
        .slice(2, rows.begin, rows.end)
        .clone();
  }
  const SafetensorsFile::Entry& entry = *file_->tensors.find(key);
  Dims shape = entry.shape;
  std::int64_t first = (item * shape[1] + head) * shape[2] + rows.begin;
  if (shape.rank() == 4) first *= shape[3];
  shape[0] = shape[1] = 1, shape[2] = rows.end - rows.begin;
  file_->input.check_unchanged();
  Tensor tensor = file_->tensors.read(entry, first, shape);
  file_->input.check_unchanged();
  return tensor;
}

Tensor Recording::numbers(std::int64_t layer, std::string_view name) const {
  constexpr const char* function = "Recording::numbers";
  const RecordedLayer& x = at(layer);
  if (shows_pairs(x) && (name == "map_max" || name == "carried_map_max")) name.remove_suffix(4);
  const std::vector<LayerTensor> known = tensors_of(x);
  if (std::ranges::find(known, name, &LayerTensor::name) == known.end()) {
    if ((name == "q" || name == "k") && !x.has_qk) {
      fail(ErrorCode::bad_value, function, "layer {}: q and k were not kept: record with keep_qk", x.name);
    }
    if (name.starts_with("carried_") || name == "key_sizes") check_weighed_by(function, x, WeighedBy::norm);
    std::string names;
    for (const LayerTensor& each : known) names += (names.empty() ? "" : ", ") + std::string(each.name);
    fail(ErrorCode::bad_value, function, "layer {} has no {}, expected one of {}", x.name, quote(name), names);
  }
  Tensor tensor = std::move(*find(tensor_name(layer, name)));
  if (name != "top_keys" && name != "carried_top_keys") return tensor;
  const auto* keys = tensor.data<std::int64_t>();
  for (std::int64_t n = 0; n < tensor.count(); ++n) {
    if (keys[n] >= -1 && keys[n] < x.keys) continue;
    fail(ErrorCode::bad_file, function, "layer {}: a top key is {}, expected -1 to {}", x.name, keys[n], x.keys - 1);
  }
  return tensor;
}

std::vector<HeadScores> Recording::scores(std::int64_t layer, WeighedBy by) const {
  const RecordedLayer& x = at(layer);
  check_weighed_by("Recording::scores", x, by);
  const Tensor table = numbers(layer, by == WeighedBy::norm ? "carried_scores" : "scores");
  const double* from = table.data<double>();
  std::vector<HeadScores> scores;
  for (std::int64_t b = 0; b < x.batch; ++b) {
    for (const std::int64_t head : x.heads) {
      HeadScores& s = scores.emplace_back(read_scores(from, x.keys));
      s.batch = b, s.head = head, from += score_count;
    }
  }
  return scores;
}

std::vector<Range> Recording::visible_keys(std::int64_t layer) const {
  std::vector<Range> visible;
  for (const RecordedCall& call : at(layer).calls) {
    const kernels::Rules rules{.offset = call.offset.value_or(0),
                               .window_left = call.window.left,
                               .window_right = call.window.right,
                               .key_length = call.keys.end - call.keys.begin};
    for (std::int64_t i = 0; i < call.queries.end - call.queries.begin; ++i) {
      const kernels::KeyRange keys = kernels::visible_keys(rules, i);
      visible.push_back({call.keys.begin + keys.lo, call.keys.begin + keys.hi});
    }
  }
  return visible;
}

AttentionOptions Recording::options_of(std::int64_t layer, std::size_t call, std::int64_t item, std::int64_t head,
                                       TensorMap& tensors) const {
  const RecordedCall& of = at(layer).calls[call];
  for (const std::string& name : of.tensors) {
    tensors.insert_or_assign(name, std::move(*find(tensor_name(layer, fmt::format("calls.{}.{}", call, name)))));
  }
  return attend::options_of(of, tensors, item, head);
}

std::int64_t Recording::check_head(const char* function, std::int64_t layer, std::int64_t item,
                                   std::int64_t number) const {
  const RecordedLayer& x = at(layer);
  const std::int64_t h = head(layer, number);
  if (item < 0 || item >= x.batch) {
    fail(ErrorCode::bad_value, function, "item {}, expected 0 to {}", item, x.batch - 1);
  }
  if (!x.has_qk) {
    fail(ErrorCode::bad_value, function,
         "layer {}: q and k were not kept, and weights are made from them: record with {}", x.name, "keep_qk");
  }
  return h;
}

Tensor Recording::weights(std::int64_t layer, std::int64_t item, std::int64_t number,
                          const std::optional<Range>& queries, const std::optional<Range>& keys, WeighedBy by) const {
  constexpr const char* function = "Recording::weights";
  const RecordedLayer& x = at(layer);
  const std::int64_t h = check_head(function, layer, item, number);
  check_weighed_by(function, x, by);
  const Range rows = check_range(function, "queries", queries, x.queries),
              columns = check_range(function, "keys", keys, x.keys);
  const DType dtype = statistics_dtype(x.dtype);
  Tensor weights({rows.end - rows.begin, columns.end - columns.begin}, dtype);
  for (std::size_t n = 0; n < x.calls.size(); ++n) {
    const RecordedCall& call = x.calls[n];
    const Range own_rows = within(rows, call.queries), own_columns = within(columns, call.keys);
    if (own_rows.begin == own_rows.end || own_columns.begin == own_columns.end) continue;
    TensorMap tensors;
    const AttentionOptions options = options_of(layer, n, item, h, tensors);
    const Tensor q = rows_of(layer, "q", item, h, call.queries);
    const Tensor k = rows_of(layer, "k", item, h / (std::ssize(x.heads) / x.kv_heads), call.keys);
    const Tensor lse = rows_of(layer, "lse", item, h, call.queries);
    const Tensor lse_low = rows_of(layer, "lse_low", item, h, call.queries);
    std::optional<Tensor> sizes;
    if (by == WeighedBy::norm) sizes = rows_of(layer, "key_sizes", item, h, call.keys);
    WeightsOptions part{.lse_low = lse_low, .queries = own_rows, .keys = own_columns};
    if (sizes) part.key_sizes = *sizes;
    const Tensor found = attention_weights(q, k, lse, options, part);
    const std::int64_t first_row = call.queries.begin + own_rows.begin - rows.begin;
    const std::int64_t first_column = call.keys.begin + own_columns.begin - columns.begin;
    weights.view()
        .slice(0, first_row, first_row + found.size(2))
        .slice(1, first_column, first_column + found.size(3))
        .copy_from(found.view().select(0, 0).select(0, 0));
  }
  return weights;
}

}  // namespace attend::inline v1
