// Where pieces of keys go in the forward.
#pragma once

#include "ring/conveyor.h"
#include "ring/route.h"

namespace attend::inline v1 {

// An eighth of a run, so that others begin soon; but enough keys that reading and writing the rows' sums for each piece
// takes little: with 576 keys it took a tenth of the time of 2 ranks on 2 cores.
inline constexpr PieceLimits forward_pieces{.per_run = 8, .least = 1536, .most = 3072};

// Who needs a piece, but for its owner: those of lower and of higher rank, in their order. The owner sends it to the
// first of each, and each of them to the next. With a zigzag sharding the lower a rank is the earlier it wants a piece,
// so that nobody waits for one who is slower.
struct Readers {
  std::vector<int> below, above;
  bool owner = false;  // whether it needs it too
};
Readers readers_of(const Positions& positions, const std::vector<QueryRun>& runs, const KeyPiece& piece, int ranks);

// What a rank passes on: its own pieces to others, apart as those above may want them much later than those below; and
// those that it computes on.
struct ForwardHops {
  std::vector<Hop> below, above, all;
};
ForwardHops forward_hops(const Positions& positions, const std::vector<QueryRun>& runs,
                         const std::vector<KeyPiece>& pieces, int rank, int ranks,
                         const std::function<Bytes(std::int64_t)>& bytes_of);

}  // namespace attend::inline v1
