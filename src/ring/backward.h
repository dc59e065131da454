// Where pieces of keys go in the backward: along the runs of queries that see them, from the last one to the first,
// with the sums of their gradients; then home.
#pragma once

#include "ring/conveyor.h"
#include "ring/route.h"

namespace attend::inline v1 {

// A run waits for the one before it, so pieces are small; but of as many stretches (192 to 384 keys each) as give each
// of so many threads two.
PieceLimits backward_pieces(const kernels::Sizes& sizes, std::int64_t key_heads, int threads);

// The numbers, in the list of runs, of those that meet a piece.
std::vector<std::size_t> visits_of(const Positions& positions, const std::vector<QueryRun>& runs,
                                   const KeyPiece& piece);

// How many bytes of a piece's slot are what.
struct PieceBytes {
  std::function<Bytes(std::int64_t)> keys, gradients, all;  // of n keys
};

// What a rank passes on. own: pieces of its own to the first run that meets them, where that is another rank's; of_run:
// for each of its runs, as they are listed, what meets it; home: pieces of its own that end elsewhere.
struct BackwardHops {
  std::vector<Hop> own, home;
  std::vector<std::size_t> run;  // of each list, its number
  std::vector<std::vector<Hop>> of_run;
};
BackwardHops backward_hops(const char* function, const Positions& positions, const std::vector<QueryRun>& runs,
                           const std::vector<KeyPiece>& pieces, int rank, const PieceBytes& bytes);

}  // namespace attend::inline v1
