// What `show` tells of a recording: its heads as a table, one head or one query of it in words, pictures of its maps.
// `model` tells the same of the one that it makes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/look.h"
#include "cli/line.h"
#include "cli/terminal.h"

namespace attend::cli {

// A recording, and which part of it was asked for.
struct Selection {
  const Recording& recording;
  std::int64_t item = 0;
  WeighedBy by = WeighedBy::weight;
  std::optional<std::int64_t> layer = {};  // its place
  std::optional<std::int64_t> head = {};   // the model's own number
  std::optional<std::int64_t> query = {};
};

// ---- What was asked for ----

// Of the command line.
struct ShowArguments {
  std::int64_t item = 0;
  std::string layer, head;           // head: "6" of that layer, or "18.6"
  std::optional<std::string> query;  // its number, or its word
  std::optional<std::int64_t> limit;
  std::string strip, by = "weight";
  bool links = false;
  std::string sort, label;
  bool json = false, csv = false;
  std::string scale = "sqrt";
  TextForm form;

  // Whether any part of the recording was asked for.
  bool any() const { return !layer.empty() || !head.empty() || limit || !sort.empty() || !label.empty(); }
};

// --layer to --limit; --json to --width.
void add_show_what(App& app, ShowArguments& arguments);
void add_show_form(App& app, ShowArguments& arguments);

// "18.6": head 6 of the layer that the model calls 18; of "6" the layer is empty. None for what is no head's name.
struct HeadPlace {
  std::string layer;
  std::int64_t head = 0;
};
std::optional<HeadPlace> parse_head(const std::string& name);

// Before there is a recording: what can't stand together, and what nothing would use. Throws UsageError.
void check_show(const ShowArguments& arguments, const std::vector<std::string>& files);

// Throws UsageError for a layer, head or query that is not there.
Selection select(const Recording& recording, const ShowArguments& arguments);
// Throws UsageError for a score or a label that is known of none of the heads.
std::vector<RecordedHead> chosen_heads(const Selection& selection, const ShowArguments& arguments);

// With --query.
std::optional<QueryRow> chosen_query(const Selection& selection, const ShowArguments& arguments);

std::string ending_of(const std::string& file);
// A picture, a .csv or a .npy file. Throws UsageError where there is none of that.
void write_shown(const std::string& file, const Selection& selection, const ShowArguments& arguments);
std::string csv_of(const Selection& selection, const ShowArguments& arguments);
// The table of heads, or one head's scores with its map, its strip or its query.
std::string shown_text(const Selection& selection, const ShowArguments& arguments);

// ---- Tables and text ----

// Those asked for, in the layers' order.
std::vector<RecordedHead> heads_of(const Selection& selection);

// Model, tokens, layers.
std::string overview(const Selection& selection, int width);
// A line for each head. Columns that no head has are left out, and of the others so many that lines fit the width: the
// last line says which. The one named `sorted` stays.
std::string heads_table(const Recording& recording, const std::vector<RecordedHead>& heads, int width,
                        std::string_view sorted);
// "18.6: sink .81; besides: induction .69", and its scores.
std::string title_of(const Recording& recording, const RecordedHead& head);
std::string head_text(const Recording& recording, const RecordedHead& head, int width);

std::string query_text(const QueryRow& row, WeighedBy by);

}  // namespace attend::cli
