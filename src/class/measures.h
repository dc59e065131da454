// What the experiments measure with.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/analysis.h"
#include "attend/models.h"
#include "attend/recording.h"

namespace attend::inline v1 {

// To six digits, which is more than a page shows.
double to_digits(double value);
// One row of weights, and all of them.
nlohmann::ordered_json rounded(const View& row);
nlohmann::ordered_json rows_of(const View& rows);

double length_of(std::span<const float> row);
double median(std::vector<double> values);
double deviation(std::span<const float> values);

// "23.4"
std::string head_text(const Head& head);
// A pass over the text, with queries and keys.
Recording recorded(const Model& model, std::string_view text);

// "#text=...&head=...": URL-encoded, in their order.
std::string place_of(std::initializer_list<std::pair<std::string_view, std::string>> fields);

}  // namespace attend::inline v1
