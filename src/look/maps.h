// A recording's maps as heat maps take them: which numbers, of which queries and keys, and which of them are hidden.
#pragma once

#include <vector>

#include "attend/look.h"

namespace attend::inline v1 {

struct HeadMap {
  Tensor values;
  HeatMap map;  // looks into values
};

// Those of a layer's heads; `head`: of that one alone.
std::vector<HeadMap> maps_of(const Recording& recording, std::int64_t layer, std::optional<std::int64_t> head,
                             const LookOptions& options);

// "top_keys"; by norm "carried_top_keys".
std::string name_of(WeighedBy by, std::string_view statistic);
// What a row of each recorded head of a layer [H] carries in the mean, of which its numbers by norm are shown as
// shares; by weight 1.
std::vector<double> row_means(const Recording& recording, std::int64_t layer, std::int64_t item, WeighedBy by);
void divide(Tensor& values, double divisor);

// The text that the tokens are, as far as a caption has room for it.
std::string caption_text(const std::vector<std::string>& tokens);

// One item's; empty where tokens are not known.
std::vector<std::string> item_of(const std::vector<std::vector<std::string>>& tokens, std::int64_t item);

// The part, or all of so many queries or keys. Throws bad_value.
Range part_of(const char* name, const std::optional<Range>& given, const RecordedLayer& layer, std::int64_t count);

// That there is such a layer, and in it such an item. Throws bad_value.
void check_item(const Recording& recording, std::int64_t layer, std::int64_t item);

}  // namespace attend::inline v1
