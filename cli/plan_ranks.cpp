#include "cli/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/ranks.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;
using Runs = std::vector<Range>;

std::string seconds(double amount) {
  if (amount >= 100) return fmt::format("{:.0f} s", amount);
  if (amount >= 1) return fmt::format("{:.3g} s", amount);
  return amount >= 1e-3 ? fmt::format("{:.3g} ms", amount * 1e3) : fmt::format("{:.3g} us", amount * 1e6);
}

std::string as_text(const Runs& runs) {
  std::vector<std::string> parts;
  for (const Range& run : runs)
    if (run.begin < run.end) parts.push_back(fmt::format("{}:{}", run.begin, run.end));
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

Json as_json(const Runs& runs) {
  Json list = Json::array();
  for (const Range& run : runs)
    if (run.begin < run.end) list.push_back({run.begin, run.end});
  return list;
}

// Lines of a table that are alike but for the rank are many on many machines: the first of them, and how many follow.
constexpr std::size_t most_lines = 16;

std::string table(const RingPlan& plan, const RingSharding& sharding) {
  std::vector<Column> columns{{"rank"},     {"queries", true}, {"share"},    {"in flight"}, {"state"},
                              {"messages"}, {"sent"},          {"received"}, {"work"},      {"done after"}};
  const std::size_t shown = plan.ranks.size() <= most_lines ? plan.ranks.size() : most_lines / 2;
  const auto add = [&](std::size_t rank) {
    const RingRankPlan& one = plan.ranks[rank];
    add_line(columns,
             {std::to_string(rank), as_text(sharding.queries[rank]), bytes(one.share_bytes), bytes(one.in_flight_bytes),
              bytes(one.state_bytes), std::to_string(one.sends), bytes(one.sent_bytes), bytes(one.received_bytes),
              of_thousands(one.flops, "FLOP"), seconds(one.seconds)});
  };
  for (std::size_t rank = 0; rank < shown; ++rank) add(rank);
  std::string text;
  for (const std::string& line : lines_of(columns)) text += "  " + line + "\n";
  if (shown < plan.ranks.size()) text += fmt::format("  and {} more, which --json has\n", plan.ranks.size() - shown);
  return text;
}

}  // namespace

std::string plan_on_ranks(const RanksArguments& arguments, const PlannedCall& call, bool json) {
  const auto tokens = [](const Dims& shape) { return shape[shape.rank() - 2]; };
  const RingSharding sharding = make_sharding(arguments.zigzag, arguments.ranks, tokens(call.q), tokens(call.k));
  const RingCosts& costs = arguments.costs;
  const RingPlan plan =
      plan_ring(call.q, call.k, call.v, call.dtype, sharding, call.options, arguments.backward, costs);
  const char* kind = arguments.zigzag ? "zigzag" : "contiguous";
  if (json) {
    Json report = json_heading_of(call);
    report["sharding"] = kind;
    report["backward"] = arguments.backward;
    report["piece_keys"] = plan.piece_keys;
    report["rate"] = costs.flops_per_second;
    report["bandwidth"] = costs.bytes_per_second;
    report["latency"] = costs.latency_seconds;
    report["seconds"] = plan.seconds;
    report["efficiency"] = plan.efficiency;
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      const RingRankPlan& one = plan.ranks[rank];
      report["ranks"].push_back({{"queries", as_json(sharding.queries[rank])},
                                 {"keys", as_json(sharding.keys[rank])},
                                 {"share_bytes", one.share_bytes},
                                 {"in_flight_bytes", one.in_flight_bytes},
                                 {"state_bytes", one.state_bytes},
                                 {"sends", one.sends},
                                 {"sent_bytes", one.sent_bytes},
                                 {"received_bytes", one.received_bytes},
                                 {"flops", one.flops},
                                 {"seconds", one.seconds}});
    }
    return json_text(report, 2);
  }
  std::string text = heading_of(call);
  const auto line = [&](const char* name, const std::string& value) { text += plan_line(name, value); };
  std::int64_t most = 0;
  for (const RingRankPlan& one : plan.ranks)
    most = std::max(most, one.share_bytes + one.in_flight_bytes + one.state_bytes);
  line("ranks", fmt::format("{}, {}{}", arguments.ranks, kind, arguments.backward ? ", of the gradients" : ""));
  line("pieces", fmt::format("of {} keys", plan.piece_keys));
  line("memory", fmt::format("{} of a rank at most", bytes(most)));
  line("predicted", fmt::format("{}; {:.0f} % of what {} ranks compute in that time", seconds(plan.seconds),
                                100 * plan.efficiency, arguments.ranks));
  line("from", fmt::format("{}/s and {}/s of a rank, {} of a message", of_thousands(costs.flops_per_second, "FLOP"),
                           of_thousands(costs.bytes_per_second, "B"), seconds(costs.latency_seconds)));
  return text + table(plan, sharding);
}

}  // namespace attend::cli
