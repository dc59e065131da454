// Maps of fewer blocks, from those that a recording has.
#pragma once

#include "attend/recording.h"

namespace attend {

// How many blocks to merge so that at most `most` are left and each index is still in block floor(i blocks / range):
// where blocks are all of one size, or their number can be divided. 1 where that would be far more than needed.
std::int64_t merge_size(std::int64_t blocks, std::int64_t range, std::int64_t most);
// The range of what blocks merged by `size` are: up to the end of the last one, were it full.
std::int64_t merged_range(std::int64_t range, std::int64_t blocks, std::int64_t size);

// The layer's maps in at most so many blocks, by their names: keys are added up, queries that see one averaged, and
// largest weights stay the largest. `to` is the layer as it is with these; none where there are no fewer blocks.
TensorMap coarser_maps(const Recording& recording, std::int64_t layer, const MapSize& most, RecordedLayer& to);

}  // namespace attend
