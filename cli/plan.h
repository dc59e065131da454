// `plan`: of one process (plan.cpp), and with --ranks of several, what each would hold, send and compute
// (plan_ranks.cpp).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "attend/ring.h"

namespace attend::cli {

// What is planned: shapes of the whole.
struct PlannedCall {
  Dims q, k, v;
  DType dtype = DType::f32;
  AttentionOptions options = {};
};
// How both begin, and a line of the text.
std::string heading_of(const PlannedCall& call);
nlohmann::ordered_json json_heading_of(const PlannedCall& call);
std::string plan_line(const char* name, const std::string& value);

struct RanksArguments {
  int ranks = 1;
  bool zigzag = false, backward = false;
  RingCosts costs = {};
};

// As text, or as one JSON object.
std::string plan_on_ranks(const RanksArguments& arguments, const PlannedCall& call, bool json);

}  // namespace attend::cli
