// What `show` tells of a recording: its heads as a table, one head or one query of it in words, pictures of its maps.
// `model` tells the same of the one that it makes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/picture.h"
#include "attend/recording.h"
#include "cli/line.h"
#include "cli/terminal.h"

namespace attend::cli {

// A recording, and which part of it was asked for.
struct Selection {
  const Recording& recording;
  std::int64_t item = 0;
  std::optional<std::int64_t> layer = {};  // its place
  std::optional<std::int64_t> head = {};   // the model's own number
};

struct LayerHead {
  std::int64_t layer = 0;
  HeadScores scores = {};
};

// ---- What was asked for ----

// Of the command line.
struct ShowArguments {
  std::int64_t item = 0;
  std::string layer, head;  // head: "6" of that layer, or "18.6"
  std::optional<std::int64_t> query, limit;
  std::string strip;
  std::string sort, label;
  std::string scale = "linear";
  TextForm form;

  // Whether any part of the recording was asked for.
  bool any() const { return !layer.empty() || !head.empty() || limit || !sort.empty() || !label.empty(); }
};

// --layer to --limit; --scale, --color and --width.
void add_show_what(App& app, ShowArguments& arguments, const std::string& group);
void add_show_form(App& app, ShowArguments& arguments, const std::string& group);

// Before there is a recording: what can't stand together, and what nothing would use. Throws UsageError.
void check_show(const ShowArguments& arguments, const std::vector<std::string>& files);

// Throws UsageError for a layer, head or query that is not there.
Selection select(const Recording& recording, const ShowArguments& arguments);
// Throws UsageError for a score or a label that is known of none of the heads.
std::vector<LayerHead> chosen_heads(const Selection& selection, const ShowArguments& arguments);

std::string ending_of(const std::string& file);
// A picture or a .npy file. Throws UsageError where there is none of that.
void write_shown(const std::string& file, const Selection& selection, const ShowArguments& arguments);
// The table of heads, or one head's scores with its map, its strip or its query.
std::string shown_text(const Selection& selection, const ShowArguments& arguments);

// "layer", "head", "name", its labels and its scores.
nlohmann::ordered_json head_json(const Recording& recording, const LayerHead& head);
struct QueryRow;
// "query", "token", "entropy", "distance", "top".
void add_query(nlohmann::ordered_json& report, const QueryRow& row);

// ---- Tables and text ----

// A score by the name that HeadScores has for it.
struct Score {
  std::string_view name, heading;
  int decimals;  // of the table
  std::optional<double> (*of)(const HeadScores&);
};
const std::vector<Score>& all_scores();

// Those asked for, in the layers' order.
std::vector<LayerHead> heads_of(const Selection& selection);
// The largest score of that name first; heads that have none last. "layer": as they are.
void sort_heads(std::vector<LayerHead>& heads, std::string_view score);
// Why a score, or an excess, is not known of any of them.
std::string why_unknown(const Recording& recording, const std::vector<LayerHead>& heads, std::string_view score);
// Why these heads have no labels; empty where one has.
std::string why_no_labels(const std::vector<LayerHead>& heads);

// Model, tokens, layers.
std::string overview(const Selection& selection, int width);
// A line for each head. Columns that no head has are left out, and of the others so many that lines fit the width: the
// last line says which. The one named `sorted` stays.
std::string heads_table(const Recording& recording, std::int64_t item, const std::vector<LayerHead>& heads, int width,
                        std::string_view sorted);
// "18.6"
std::string name_of(const Recording& recording, const LayerHead& head);
// "18.6: sink .81; besides: induction .69", and its scores.
std::string title_of(const Recording& recording, const LayerHead& head);
std::string head_text(const Recording& recording, const LayerHead& head, int width);

// One query's row of a head.
struct QueryRow {
  struct Key {
    std::int64_t key;
    std::optional<std::string> token;
    double weight;
  };
  std::int64_t query = 0;
  std::optional<std::string> token = {};
  double entropy = 0;
  std::optional<double> distance = {}, sink_weight = {};
  std::vector<Key> top = {};  // without those that are none
};
QueryRow query_row(const Selection& selection, std::int64_t query);
std::string query_text(const QueryRow& row);

// ---- Pictures ----

// A head's map, or its exact weights where these are few and a block is several of them.
struct HeadMap {
  Tensor values;
  HeatMap map;  // looks into values
};
// Of the head that was asked for, else of all heads of the layer.
std::vector<HeadMap> layer_maps(const Selection& selection, std::int64_t layer, PictureScale scale);

// The same in at most 60 rows and so many columns: blocks of blocks, whose keys are added up and whose queries
// averaged, where they can be cut so. What a mean over both axes would make pale stays what it is.
HeadMap merged_map(const Selection& selection, std::int64_t layer, HeadMap map, int columns);

// `what`: received, lift or entropy. Throws UsageError where the tokens are unknown.
struct HeadStrip {
  Tensor values;
  TokenStrip strip;  // looks into values
};
HeadStrip head_strip(const Selection& selection, std::string_view what, PictureScale scale);

// All heads of all layers. Throws UsageError where layers have different heads.
struct AllMaps {
  std::vector<HeadMap> maps;
  HeadGrid grid;  // looks into maps
};
AllMaps head_grid(const Selection& selection, PictureScale scale);

}  // namespace attend::cli
