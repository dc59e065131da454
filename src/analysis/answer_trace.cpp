#include "attend/answer_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/asked.h"
#include "analysis/gradients.h"
#include "analysis/json.h"
#include "analysis/splits.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

using PartKind = AttributionPart::Kind;

constexpr const char* answer_trace_function = "trace_answer";

// Whether it is of what a layer writes, which may be 0.
bool is_written(const AttributionPart& part) {
  return part.kind == PartKind::head || part.kind == PartKind::cross || part.kind == PartKind::mlp;
}

class Tracing {
 public:
  Tracing(const Model& model, std::span<const std::int64_t> ids, const TraceOptions& options)
      : model_(model), ids_(ids), options_(options) {
    models::check_exact(model.info(), answer_trace_function);
    if (options.heads < 1 || options.parts < 1)
      fail(ErrorCode::bad_value, answer_trace_function, "heads is {} and parts is {}, expected at least 1",
           options.heads, options.parts);
  }

  AnswerTrace run() {
    const analysis::Text text{ids_, options_.decoder_ids};
    const std::vector<AttributionPart> all = answer(text);
    double size = 0;
    for (const AttributionPart& part : all) size += std::abs(part.value);
    for (const AttributionPart& part : all)
      if (part.kind == PartKind::head && part.value != 0 && std::ssize(out_.heads) < options_.heads)
        out_.heads.push_back({.wrote = {.part = part, .share = std::abs(part.value) / size}});
    look_back(text);
    if (options_.measured) measure();
    return std::move(out_);
  }

 private:
  // The answer, its parts, and along which direction it reads each head.
  std::vector<AttributionPart> answer(const analysis::Text& text) {
    const AttributeOptions number{.token = options_.token,
                                  .against = options_.against,
                                  .position = options_.position,
                                  .decoder_ids = options_.decoder_ids};
    analysis::Attributing asked(model_, text, number);
    const std::int64_t H = model_.info().heads;
    asked.tell([&](ModelPlace place, std::int64_t layer, std::span<const double> u) {
      const std::int64_t D = std::ssize(u) / std::max<std::int64_t>(1, H);
      for (std::int64_t h = 0; place == ModelPlace::z && h < H; ++h) {
        Tensor& direction = directions_[{layer, h}] = Tensor({D});
        for (std::int64_t d = 0; d < D; ++d)
          direction.data<float>()[d] = static_cast<float>(u[static_cast<std::size_t>(h * D + d)]);
      }
    });
    ModelCache* const caches[] = {asked.cache()};
    const Tensor hidden = ModelAccess::forward(
        model_, asked.ids(), {.caches = caches, .decoder_ids = asked.decoder_ids()}, &asked.watcher());
    const Attribution found = asked.finish(hidden);
    out_ = {.token = found.token, .against = found.against, .position = found.position, .logit = found.capped_logit};
    return strongest_parts(found, found.heads.count() + found.cross.count() + found.mlps.count() + 3);
  }

  // Why the heads looked there, and who wrote what they read: of one pass.
  void look_back(const analysis::Text& text) {
    if (out_.heads.empty()) return;
    const ScoreOptions against_mean{.decoder_ids = options_.decoder_ids};
    std::vector<analysis::SplittingScore> scores;
    std::vector<std::int64_t> layers, rows;
    for (const TracedHead& head : out_.heads) {
      const AttributionPart& part = head.wrote.part;
      scores.emplace_back(model_, text, Head{part.layer, part.head}, out_.position, part.key, against_mean);
      layers.push_back(part.layer), rows = scores.back().rows();  // of the mean, the same for all
    }
    analysis::RowPieces pieces(rows, layers);
    analysis::pass_of(answer_trace_function, model_, text, nullptr, pieces);
    for (std::size_t n = 0; n < scores.size(); ++n) look_back(out_.heads[n], scores[n], pieces);
  }
  void look_back(TracedHead& head, const analysis::SplittingScore& asked, const analysis::RowPieces& pieces) {
    const AttributionPart& part = head.wrote.part;
    const Head which{part.layer, part.head};
    analysis::SplittingValue reading(ModelAccess::parts(model_), pieces, which, part.key,
                                     directions_.at(which).clone());
    const ScoreSplit score =
        asked.split(pieces, nullptr, [&](const AttributionPart& of, const Tensor& rows) { reading.add(of, rows); });
    const ValueSplit value = reading.take();
    head.score = score.score, head.value = value.value;
    head.query = strongest(score.parts);
    head.key = strongest(score.key_parts);
    head.read = strongest(value.parts);
  }

  std::vector<TracedPart> strongest(std::vector<AttributionPart> parts) const {
    double size = 0;
    for (const AttributionPart& part : parts) size += std::abs(part.value);
    std::ranges::stable_sort(parts, std::greater(), [](const AttributionPart& part) { return std::abs(part.value); });
    std::erase_if(parts, [](const AttributionPart& part) { return part.value == 0; });
    parts.resize(std::min(parts.size(), static_cast<std::size_t>(options_.parts)));
    std::vector<TracedPart> found;
    found.reserve(parts.size());
    for (const AttributionPart& part : parts) found.push_back({.part = part, .share = std::abs(part.value) / size});
    return found;
  }

  // What really changes without each part, each once.
  void measure() {
    std::map<std::tuple<PartKind, std::int64_t, std::int64_t, std::int64_t>, double> known;
    const TraceOptions asked{
        .token = out_.token, .against = out_.against, .position = out_.position, .decoder_ids = options_.decoder_ids};
    const auto take_out = [&](TracedPart& x, std::int64_t row) {
      if (!is_written(x.part)) return;
      const auto [found, fresh] = known.try_emplace({x.part.kind, x.part.layer, x.part.head, row}, 0);
      if (fresh) found->second = answer_without(model_, ids_, x.part, row, asked);
      x.without = found->second;
    };
    for (std::size_t n = 0; n < out_.heads.size(); ++n) {
      TracedHead& head = out_.heads[n];
      const std::int64_t key = head.wrote.part.key;
      take_out(head.wrote, out_.position);
      for (TracedPart& part : head.query) take_out(part, out_.position);
      for (TracedPart& part : head.key) take_out(part, key);
      for (TracedPart& part : head.read) take_out(part, key);
      if (options_.progress) options_.progress(static_cast<double>(n + 1) / static_cast<double>(out_.heads.size()));
    }
  }

  const Model& model_;
  std::span<const std::int64_t> ids_;
  const TraceOptions& options_;
  AnswerTrace out_;
  std::map<Head, Tensor> directions_;  // [Dv]
};

Json json_of(const TracedPart& x) {
  Json json = json_of(x.part);
  if (x.part.key >= 0) json["key"] = x.part.key;
  json["value"] = x.part.value, json["share"] = x.share, json["without"] = or_null(x.without);
  return json;
}

Json json_of(const std::vector<TracedPart>& parts) {
  Json all = Json::array();
  for (const TracedPart& part : parts) all.push_back(json_of(part));
  return all;
}

}  // namespace

AnswerTrace trace_answer(const Model& model, std::span<const std::int64_t> ids, const TraceOptions& options) {
  return Tracing(model, ids, options).run();
}

double answer_without(const Model& model, std::span<const std::int64_t> ids, const AttributionPart& part,
                      std::optional<std::int64_t> row, const TraceOptions& options) {
  models::check_exact(model.info(), "answer_without");
  if (!is_written(part))
    fail(ErrorCode::bad_value, "answer_without", "the part is an embedding or biases, expected a head or an MLP");
  Edit edit{.layer = part.layer, .set = Edit::Set::zero};
  edit.at = part.kind == PartKind::mlp    ? ModelPlace::mlp
            : part.kind == PartKind::head ? ModelPlace::z
                                          : ModelPlace::cross_z;
  if (part.kind != PartKind::mlp) edit.head = part.head;
  if (row) edit.rows = std::vector<std::int64_t>{*row};
  const GradientOptions number{.token = options.token,
                               .against = options.against,
                               .position = options.position,
                               .decoder_ids = options.decoder_ids,
                               .edits = {&edit, 1}};
  return analysis::number(model, ids, number, {}).values.front();
}

std::string to_json(const AnswerTrace& x) {
  Json heads = Json::array();
  for (const TracedHead& head : x.heads)
    heads.push_back({{"wrote", json_of(head.wrote)},
                     {"score", head.score},
                     {"value", head.value},
                     {"query", json_of(head.query)},
                     {"key", json_of(head.key)},
                     {"read", json_of(head.read)}});
  return text_of({{"token", x.token},
                  {"against", or_null(x.against)},
                  {"position", x.position},
                  {"logit", x.logit},
                  {"heads", std::move(heads)}});
}

}  // namespace attend::inline v1
