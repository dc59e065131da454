// Heads as JSON and as CSV.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/message.h"
#include "look/csv.h"
#include "look/maps.h"

namespace attend::inline v1 {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json layer_json(const RecordedLayer& x) {
  return {{"name", x.name}, {"kind", x.kind}, {"dtype", name_of(x.dtype)}, {"heads", x.heads}, {"queries", x.queries},
          {"keys", x.keys}, {"qk", x.has_qk}};
}

Json labels_json(const std::vector<HeadLabel>& labels) {
  Json list = Json::array();
  for (const HeadLabel& label : labels) list.push_back({{"name", label.name}, {"value", label.value}});
  return list;
}

Json excess_json(const HeadKinds& excess) {
  Json all;
  for (const std::string_view name : HeadKinds::names()) all[name] = or_null(excess.of(name));
  return all;
}

Json head_json(const Recording& recording, const RecordedHead& head) {
  const HeadScores& scores = head.scores;
  Json entry = {{"layer", recording.at(head.layer).name},
                {"head", scores.head},
                {"name", name_of(recording, head)},
                {"labels", labels_json(scores.labels)}};
  for (const HeadStatistic& statistic : head_statistics()) {
    const std::optional<double> number = statistic.of(scores);
    entry[statistic.name] =
        number && statistic.decimals == 0 ? Json(static_cast<std::int64_t>(*number)) : or_null(number);
  }
  entry["excess"] = excess_json(scores.excess);
  const auto& rest = scores.without_sink;
  entry["without_sink"] = nullptr;
  if (rest)
    entry["without_sink"] = {{"labels", labels_json(rest->labels)},
                             {"excess", excess_json(rest->excess)},
                             {"effective_keys", rest->effective_keys},
                             {"rows_left_out", rest->rows_left_out}};
  return entry;
}

void add_query(Json& report, const QueryRow& row) {
  report["query"] = row.query;
  report["token"] = or_null(row.token);
  report["entropy"] = row.entropy;
  report["distance"] = or_null(row.distance);
  report["top"] = Json::array();
  for (const QueryRow::Key& key : row.top)
    report["top"].push_back({{"key", key.key}, {"token", or_null(key.token)}, {"weight", key.weight}});
}

}  // namespace

std::string heads_json(const Recording& recording, std::int64_t item, const std::vector<RecordedHead>& heads,
                       const std::optional<QueryRow>& query) {
  const auto tokens = [&](const std::vector<std::vector<std::string>>& of) {
    return item < std::ssize(of) ? Json(of[static_cast<std::size_t>(item)]) : Json(nullptr);
  };
  Json report = {{"schema_version", 1},
                 {"model", recording.model},
                 {"item", item},
                 {"by", name_of(heads.empty() ? WeighedBy::weight : heads.front().by)},
                 {"tokens", tokens(recording.tokens)},
                 {"decoder_tokens", tokens(recording.decoder_tokens)},
                 {"layers", Json::array()},
                 {"heads", Json::array()}};
  if (recording.activations != Activations::exact) report["activations"] = name_of(recording.activations);
  for (const RecordedLayer& layer : recording.layers()) report["layers"].push_back(layer_json(layer));
  for (const RecordedHead& head : heads) report["heads"].push_back(head_json(recording, head));
  if (query) add_query(report, *query);
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string heads_csv(const Recording& recording, const std::vector<RecordedHead>& heads) {
  std::string text = "layer,head,name,labels";
  for (const HeadStatistic& statistic : head_statistics()) text += fmt::format(",{}", statistic.name);
  for (const std::string_view name : HeadKinds::names()) text += fmt::format(",{}_excess", name);
  const auto number = [&](const std::optional<double>& value) {
    text += value && !std::isnan(*value) ? fmt::format(",{}", *value) : ",";
  };
  text += "\n";
  for (const RecordedHead& head : heads) {
    const HeadScores& scores = head.scores;
    text += fmt::format("{},{},{},{}", csv_cell(recording.at(head.layer).name), scores.head,
                        csv_cell(name_of(recording, head)), csv_cell(scores.label_text()));
    for (const HeadStatistic& statistic : head_statistics()) number(statistic.of(scores));
    for (const std::string_view name : HeadKinds::names()) number(scores.excess.of(name));
    text += "\n";
  }
  return text;
}

}  // namespace attend::inline v1
