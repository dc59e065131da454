// What a model made of a text, as JSON: docs/json.md.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of f32 the shortest decimals that read back as the same.
Json numbers(const Tensor& tensor) {
  Json list = Json::array();
  for (std::int64_t n = 0; n < tensor.count(); ++n)
    if (tensor.dtype() == DType::i64)
      list.push_back(tensor.data<std::int64_t>()[n]);
    else
      list.push_back(std::stod(fmt::format("{}", tensor.data<float>()[n])));
  return list;
}

Json model_json(const ModelInfo& x) {
  return {{"type", x.type},
          {"family", name_of(x.family)},
          {"head", x.head.empty() ? Json() : Json(x.head)},
          {"layers", x.layers},
          {"heads", x.heads},
          {"kv_heads", x.kv_heads},
          {"head_size", x.head_size},
          {"embedding_size", x.embedding_size},
          {"vocabulary", x.vocabulary},
          {"longest", x.longest == std::numeric_limits<std::int64_t>::max() ? Json() : Json(x.longest)},
          {"encoder_layers", x.encoder_layers},
          {"encoder_heads", x.encoder_heads},
          {"parameters", x.parameters},
          {"dtype", name_of(x.dtype)},
          {"formats", x.formats},
          {"weight_bytes", x.weight_bytes}};
}

// A tensor as nested lists, one level for each axis.
Json nested(const View& x) {
  if (x.rank() == 1) return numbers(x.clone());
  Json list = Json::array();
  for (std::int64_t n = 0; n < x.size(0); ++n) list.push_back(nested(x.select(0, n)));
  return list;
}

Json or_null(const std::optional<std::int64_t>& id) {
  return id ? Json(*id) : Json();
}

Json why_json(const Attribution& x) {
  Json why = {{"token", x.token},
              {"against", or_null(x.against)},
              {"logit", x.logit},
              {"capped_logit", x.capped_logit},
              {"heads", nested(x.heads)}};
  if (x.cross.count() > 0) why["cross"] = nested(x.cross);
  why.update({{"mlps", numbers(x.mlps)}, {"embedding", x.embedding}, {"bias", x.bias}, {"rounding", x.rounding}});
  return why;
}

Json lens_json(const Computed& x) {
  const Lens& lens = *x.analyses.lens;
  return {{"positions", x.analyses.positions},
          {"ids", nested(lens.ids)},
          {"log_probabilities", nested(lens.log_probabilities)},
          {"rank", nested(lens.rank)}};
}

Json ablation_json(const Ablation& x, bool decoder) {
  if (!decoder) return {{"cosine_distance", nested(x.cosine_distance)}};
  return {{"token", or_null(x.token)},
          {"against", or_null(x.against)},
          {"logit", nested(x.logit)},
          {"log_probability", nested(x.log_probability)},
          {"kl", nested(x.kl)}};
}

Json patching_json(const Patched& x) {
  return {{"corrupt_ids", x.corrupt},
          {"token", x.patching.token},
          {"against", x.patching.against},
          {"clean_difference", x.patching.clean},
          {"corrupt_difference", x.patching.corrupt},
          {"recovered", nested(x.patching.recovered)}};
}

Json without_json(const Without& x, bool decoder) {
  const auto one = [](const Tensor& of) { return numbers(of)[0]; };
  if (!decoder) return {{"heads", x.names}, {"cosine_distance", one(x.ablation.cosine_distance)}};
  return {{"heads", x.names},
          {"token", x.token},
          {"logit", one(x.ablation.logit)},
          {"log_probability", one(x.ablation.log_probability)},
          {"kl", one(x.ablation.kl)}};
}

}  // namespace

std::string to_json(const Computed& x, const Selection& selection, const ShowArguments& what) {
  Json report = {{"schema_version", 1},          {"model", x.recording.model},
                 {"info", model_json(x.info)},   {"tokens", x.recording.tokens[0]},
                 {"ids", x.encoding.ids},        {"offsets", Json::array()},
                 {"special", x.encoding.special}};
  for (const Range& range : x.encoding.offsets) report["offsets"].push_back({range.begin, range.end});
  if (x.info.encoder_decoder())
    report["decoder_tokens"] = x.recording.decoder_tokens[0], report["decoder_ids"] = x.decoder_ids;
  if (x.info.decoder()) {
    report["next"] = Json::array();
    for (const Candidate& next : x.next)
      report["next"].push_back({{"id", next.id}, {"token", next.token}, {"probability", next.probability}});
  }
  if (x.generated) report["generated"] = {{"ids", x.generated_ids}, {"text", *x.generated}};
  if (x.embedding) report["embedding"] = numbers(*x.embedding);
  if (x.analyses.why) report["why"] = why_json(x.analyses.why->attribution);
  if (x.analyses.without) report["without"] = without_json(*x.analyses.without, x.info.decoder());
  if (x.analyses.lens) report["lens"] = lens_json(x);
  if (x.analyses.ablation) report["ablation"] = ablation_json(*x.analyses.ablation, x.info.decoder());
  if (x.analyses.patched) report["patching"] = patching_json(*x.analyses.patched);
  for (const Neighbour& near : x.nearest)
    report["nearest"].push_back({{"text", near.text}, {"similarity", near.similarity}});
  // The heads, and what follows them: as attend show has it.
  const Json shown = Json::parse(
      heads_json(x.recording, selection.item, chosen_heads(selection, what), chosen_query(selection, what)));
  for (auto entry = shown.find("heads"); entry != shown.end(); ++entry) report[entry.key()] = entry.value();
  return json_text(report);
}

}  // namespace attend::cli
