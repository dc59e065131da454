// Maps of fewer blocks, from those that a recording has.
#pragma once

#include "attend/recording.h"

namespace attend::inline v1 {

// How many rows and columns of a map's blocks to merge so that at most `most` are left and each index is still in block
// floor(i blocks / range): where blocks are all of one size, or their number can be divided. 1 where that would be far
// more than needed. Of a square map as many of both: its diagonal stays one.
MapSize merge_sizes(const MapSize& blocks, const MapSize& ranges, const MapSize& most);
// The range of what blocks merged by `size` are: up to the end of the last one, were it full.
std::int64_t merged_range(std::int64_t range, std::int64_t blocks, std::int64_t size);

// A map's blocks, row by row, merged by so many: what a mean over both axes would make pale stays what it is, as keys
// are added up, and queries that see one averaged. seeing: of each row, how many do. [rows,columns], f64.
Tensor merged_means(const double* map, const MapSize& blocks, const MapSize& by, const double* seeing);

// The layer's maps in at most so many blocks, by their names: keys are added up, queries that see one averaged, and
// largest weights stay the largest. `to` is the layer as it is with these; none where there are no fewer blocks.
TensorMap coarser_maps(const Recording& recording, std::int64_t layer, const MapSize& most, RecordedLayer& to);

}  // namespace attend::inline v1
