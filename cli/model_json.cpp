// What a model made of a text, as JSON: docs/json.md.
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {
using Json = nlohmann::ordered_json;

std::string to_json(const Computed& x, const Selection& selection, const ShowArguments& what) {
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
  if (x.generated) report["generated"] = {{"ids", x.generated->ids}, {"text", x.generated->text}};
  if (x.embedding) report["embedding"] = Json::parse(attend::to_json(*x.embedding))[0];
  for (const Finding& found : x.findings) report[found.name] = Json::parse(found.json());
  for (const Neighbour& near : x.nearest)
    report["nearest"].push_back({{"text", near.text}, {"similarity", near.similarity}});
  // The heads, and what follows them: as attend show has it.
  const Json shown = Json::parse(
      heads_json(x.recording, selection.item, chosen_heads(selection, what), chosen_query(selection, what)));
  for (auto entry = shown.find("heads"); entry != shown.end(); ++entry) report[entry.key()] = entry.value();
  return json_text(report);
}

}  // namespace attend::cli
