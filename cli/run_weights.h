// What `run` tells of the weights: --summary and --weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attend/io.h"
#include "attend/summary.h"
#include "cli/line.h"

namespace attend::cli {

// As they stand on the command line.
struct InsideArguments {
  bool summary = false;
  std::optional<std::int64_t> top;
  std::string map, weights;

  bool any() const { return summary || !weights.empty(); }
};

void add_inside(App& app, InsideArguments& arguments);

// Part of an axis, BEGIN:END on the command line; without an end, up to the axis' own.
struct Slice {
  std::int64_t begin = 0;
  std::optional<std::int64_t> end = {};
};

// What the arguments ask.
struct InsideOptions {
  bool summary = false;
  std::int64_t top = SummaryOptions{}.top;
  std::optional<MapSize> map = {};
  std::optional<std::pair<Slice, Slice>> weights = {};  // of the queries and of the keys
};

// Throws UsageError for what can't be read, and for what nothing uses.
InsideOptions parse_inside(const InsideArguments& arguments);

// What goes into a file.
struct Inside {
  std::optional<AttentionSummary> summary = {};
  std::optional<Tensor> weights = {};

  // By the names that attend/summary.h has; they live as long as this.
  NamedViews named() const;
};

// Of the call that gave the result; null: of one without values. Throws UsageError for a part that is not there.
Inside look_inside(const InsideOptions& inside, const View& q, const View& k, const AttentionOptions& options,
                   const AttentionResult* result);

// The arguments' shapes, and a line for each head.
std::string head_table(const View& q, const View& k, const AttentionOptions& options);

// Throws UsageError where the queries or keys have no such part. Before anything long is computed.
void check_part(const InsideOptions& inside, const View& q, const View& k);

}  // namespace attend::cli
