// What a model made of a text, as JSON: docs/json.md.
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

Json patching_json(const Patched& x) {
  Json json = {{"corrupt_ids", x.corrupt}};
  json.update(Json::parse(attend::to_json(x.patching)));
  return json;
}

Json without_json(const Without& x, bool decoder) {
  const Json of = Json::parse(attend::to_json(x.ablation));
  if (!decoder) return {{"heads", x.names}, {"cosine_distance", of["cosine_distance"][0]}};
  return {{"heads", x.names},
          {"token", x.token},
          {"logit", of["logit"][0]},
          {"log_probability", of["log_probability"][0]},
          {"kl", of["kl"][0]}};
}

}  // namespace

std::string to_json(const Computed& x, const Selection& selection, const ShowArguments& what) {
  const Analyses& found = x.analyses;
  Json report = {{"schema_version", 1},
                 {"model", x.recording.model},
                 {"info", Json::parse(attend::to_json(x.info))},
                 {"tokens", x.recording.tokens[0]},
                 {"ids", x.encoding.ids},
                 {"offsets", Json::array()},
                 {"special", x.encoding.special}};
  for (const Range& range : x.encoding.offsets) report["offsets"].push_back({range.begin, range.end});
  if (x.info.encoder_decoder())
    report["decoder_tokens"] = x.recording.decoder_tokens[0], report["decoder_ids"] = x.decoder_ids;
  if (x.info.decoder()) report["next"] = Json::parse(attend::to_json(x.next));
  if (x.generated) report["generated"] = {{"ids", x.generated_ids}, {"text", *x.generated}};
  if (x.embedding) report["embedding"] = Json::parse(attend::to_json(*x.embedding))[0];
  if (found.why) report["why"] = Json::parse(attend::to_json(found.why->attribution));
  if (found.without) report["without"] = without_json(*found.without, x.info.decoder());
  if (found.lens) report["lens"] = Json::parse(attend::to_json(*found.lens, found.positions));
  if (found.ablation) report["ablation"] = Json::parse(attend::to_json(*found.ablation));
  if (found.patched) report["patching"] = patching_json(*found.patched);
  for (const Neighbour& near : x.nearest)
    report["nearest"].push_back({{"text", near.text}, {"similarity", near.similarity}});
  // The heads, and what follows them: as attend show has it.
  const Json shown = Json::parse(
      heads_json(x.recording, selection.item, chosen_heads(selection, what), chosen_query(selection, what)));
  for (auto entry = shown.find("heads"); entry != shown.end(); ++entry) report[entry.key()] = entry.value();
  return json_text(report);
}

}  // namespace attend::cli
