// The numbers of a tensor as PyTorch lays them out.
#pragma once

#include <string>

#include "attend/tensor.h"

namespace attend::inline v1 {

enum class SciMode {
  automatic,  // 1.0000e-05 for all numbers where some are very large, very small or far apart, as PyTorch chooses
  off,        // always decimals: torch.set_printoptions(sci_mode=False)
};

// What format_tensor writes between "tensor(" and ")": nested brackets with aligned numbers, no newline at the end.
// The first line begins after `indent` columns that the caller has written; the others get spaces for them. Rows break
// so that lines stay within `width` columns, bracket and comma aside, as PyTorch's do. Of more than `most` elements,
// long axes show their ends alone.
std::string format_values(const View& values, int indent, int width, SciMode sci_mode = SciMode::automatic,
                          std::int64_t most = 1000);

}  // namespace attend::inline v1
