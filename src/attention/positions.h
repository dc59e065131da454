// What attention() makes of positions, for a caller that writes them into a mask or a bias of its own.
#pragma once

#include <vector>

#include "attend/attention.h"
#include "kernels/rules.h"

namespace attend::inline v1 {

// Which keys causal and window leave to a query: a window, of which causal is a right side of 0.
inline Window visible_window(const AttentionOptions& options) {
  return {options.window.left, options.causal ? 0 : options.window.right};
}

// Checks the arguments as attention() does, with messages of `function`. The rules of each batch item.
std::vector<kernels::Rules> check_positions(const char* function, const View& q, const View& k, const View& v,
                                            const AttentionOptions& options);

}  // namespace attend::inline v1
