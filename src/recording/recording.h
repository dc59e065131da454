// A recording's file, and what its tensors are called and must be.
#pragma once

#include <string>

#include "attend/recording.h"
#include "io/safetensors.h"

namespace attend::inline v1 {

struct Recording::File {
  File(std::string_view function, const std::filesystem::path& path)
      : input(function, path, Pipes::read), tensors(input) {}

  InputFile input;
  SafetensorsFile tensors;
};

// A tensor of a layer: its name, and what it must be there.
struct LayerTensor {
  std::string_view name;
  DType dtype;
  Dims shape;
};
// Those that a layer has, in the order of Recording::numbers(); scores too.
std::vector<LayerTensor> tensors_of(const RecordedLayer& layer);

// Whether a block of the map is one query and one key: then it is what map_max would be.
inline bool shows_pairs(const RecordedLayer& layer) {
  return layer.row_blocks == layer.row_range && layer.column_blocks == layer.column_range;
}

inline bool has_statistic(const RecordedLayer& layer, const SummaryStatistic& statistic) {
  if (statistic.needs == SummaryStatistic::Needs::key_sizes && !layer.has_key_sizes) return false;
  if (statistic.optional == &AttentionSummary::map_max || statistic.optional == &AttentionSummary::carried_map_max)
    return !shows_pairs(layer);
  if (statistic.needs == SummaryStatistic::Needs::offset) return layer.has_distance;
  return statistic.needs != SummaryStatistic::Needs::sinks || layer.has_sinks;
}

// The part of `wanted` that lies in `range`, counted from that one's begin.
Range within(const Range& wanted, const Range& range);

// "layers.3.name"
std::string tensor_name(std::int64_t layer, std::string_view name);

}  // namespace attend::inline v1
