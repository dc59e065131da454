#include "attend/answer_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/gradients.h"
#include "analysis/json.h"
#include "attend/score_split.h"
#include "core/message.h"

namespace attend::inline v0 {

namespace {

using Kind = AttributionPart::Kind;

constexpr const char* function = "trace_answer";

// Whether it is of what a layer writes, which may be 0.
bool is_written(const AttributionPart& part) {
  return part.kind == Kind::head || part.kind == Kind::cross || part.kind == Kind::mlp;
}

class Tracing {
 public:
  Tracing(const Model& model, std::span<const std::int64_t> ids, const TraceOptions& options)
      : model_(model), ids_(ids), options_(options) {
    if (options.heads < 1 || options.parts < 1)
      fail(ErrorCode::bad_value, function, "heads is {} and parts is {}, expected at least 1", options.heads,
           options.parts);
  }

  AnswerTrace run() {
    const Attribution found = attribute(model_, ids_,
                                        {.token = options_.token,
                                         .against = options_.against,
                                         .position = options_.position,
                                         .decoder_ids = options_.decoder_ids});
    out_ = {.token = found.token, .against = found.against, .position = found.position, .logit = found.capped_logit};
    const std::vector<AttributionPart> all =
        strongest_parts(found, found.heads.count() + found.cross.count() + found.mlps.count() + 3);
    double size = 0;
    for (const AttributionPart& part : all) size += std::abs(part.value);
    for (const AttributionPart& part : all) {
      if (part.kind != Kind::head || std::ssize(out_.heads) == options_.heads || part.value == 0) continue;
      TracedHead& head = out_.heads.emplace_back();
      head.wrote = {.part = part, .share = std::abs(part.value) / size, .without = without(part, out_.position)};
      look_back(head);
      if (options_.progress)
        options_.progress(static_cast<double>(out_.heads.size()) / static_cast<double>(options_.heads));
    }
    return std::move(out_);
  }

 private:
  // Why the head looked there, and who wrote what it read.
  void look_back(TracedHead& head) {
    const Head which{head.wrote.part.layer, head.wrote.part.head};
    const std::int64_t key = head.wrote.part.key;
    const ScoreSplit score =
        explain_score(model_, ids_, which, out_.position, key, {.decoder_ids = options_.decoder_ids});
    const ValueSplit value = explain_value(
        model_, ids_, which, key,
        {.token = out_.token, .against = out_.against, .position = out_.position, .decoder_ids = options_.decoder_ids});
    head.score = score.score, head.value = value.value;
    head.query = strongest(with(score.parts, sums_of_query(score)), out_.position);
    head.key = strongest(with(score.parts, sums_of_key(score)), key);
    head.read = strongest(value.parts, key);
  }

  static std::vector<AttributionPart> with(std::vector<AttributionPart> parts, const Tensor& values) {
    for (std::size_t n = 0; n < parts.size(); ++n) parts[n].value = static_cast<double>(values.data<float>()[n]);
    return parts;
  }

  std::vector<TracedPart> strongest(std::vector<AttributionPart> parts, std::int64_t row) {
    double size = 0;
    for (const AttributionPart& part : parts) size += std::abs(part.value);
    std::ranges::stable_sort(parts, std::greater(), [](const AttributionPart& part) { return std::abs(part.value); });
    std::erase_if(parts, [](const AttributionPart& part) { return part.value == 0; });
    parts.resize(std::min(parts.size(), static_cast<std::size_t>(options_.parts)));
    std::vector<TracedPart> found;
    found.reserve(parts.size());
    for (const AttributionPart& part : parts)
      found.push_back({.part = part, .share = std::abs(part.value) / size, .without = without(part, row)});
    return found;
  }

  // The answer's number where what the part wrote in a row is 0.
  std::optional<double> without(const AttributionPart& part, std::int64_t row) {
    if (!is_written(part)) return {};
    const auto [known, fresh] = without_.try_emplace({part.kind, part.layer, part.head, row}, 0);
    if (fresh) {
      Edit edit{.layer = part.layer, .set = Edit::Set::zero};
      edit.at = part.kind == Kind::mlp    ? ModelPlace::mlp
                : part.kind == Kind::head ? ModelPlace::z
                                          : ModelPlace::cross_z;
      if (part.kind != Kind::mlp) edit.head = part.head;
      edit.rows = std::vector<std::int64_t>{row};
      const GradientOptions number{.token = out_.token,
                                   .against = out_.against,
                                   .position = out_.position,
                                   .decoder_ids = options_.decoder_ids,
                                   .edits = {&edit, 1}};
      known->second = analysis::number(model_, ids_, number, {}).values.front();
    }
    return known->second;
  }

  const Model& model_;
  std::span<const std::int64_t> ids_;
  const TraceOptions& options_;
  AnswerTrace out_;
  std::map<std::tuple<Kind, std::int64_t, std::int64_t, std::int64_t>, double> without_;
};

Json json_of(const TracedPart& x) {
  constexpr std::pair<Kind, const char*> names[] = {{Kind::head, "head"},
                                                    {Kind::cross, "cross"},
                                                    {Kind::mlp, "mlp"},
                                                    {Kind::embedding, "embedding"},
                                                    {Kind::bias, "bias"}};
  Json json;
  for (const auto& [kind, name] : names)
    if (kind == x.part.kind) json["kind"] = name;
  if (x.part.layer >= 0) json["layer"] = x.part.layer;
  if (x.part.head >= 0) json["head"] = x.part.head;
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

}  // namespace attend::inline v0
