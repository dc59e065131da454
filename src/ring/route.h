// Which keys go where: the pieces that they are cut into, and who needs each.
#pragma once

#include <vector>

#include "attend/ring.h"
#include "attention/piecewise.h"

namespace attend::inline v1 {

// Runs and pieces are cut at multiples of it, so that no tile is: of the forward's 64 keys, or of the backward's 48
// keys and 64 rows.
inline constexpr std::int64_t whole_tiles = 192;

// Keys that travel together: of one run of one rank.
struct KeyPiece {
  Range keys;  // in the whole
  int owner = 0;
  std::int64_t local = 0;  // where they begin among the owner's

  std::int64_t count() const { return keys.end - keys.begin; }
};

// The queries of one run of one rank.
struct QueryRun {
  Range queries;  // in the whole
  int rank = 0;
  std::int64_t local = 0;  // where they begin among the rank's
};

// Throws bad_value unless every position is in one run, and the sharding is for that many ranks.
void check_sharding(const char* function, const RingSharding& sharding, int ranks);

// In the order of the sequence, at most `piece_keys` each.
std::vector<KeyPiece> cut_keys(const RingSharding& sharding, std::int64_t piece_keys);
// From the last one to the first.
std::vector<QueryRun> list_runs(const RingSharding& sharding);

// How many keys a piece has: as asked for, or so many that a run has several, and a piece's work is large beside what
// it costs.
struct PieceLimits {
  std::int64_t per_run, least, most;
};
std::int64_t choose_piece(const char* function, const RingSharding& sharding, const RingOptions& ring,
                          const PieceLimits& limits);

// Keys of the longest run of keys of a rank, in pieces.
std::int64_t pieces_of_run(const RingSharding& sharding, std::int64_t piece_keys);

// Pieces that a rank holds for others: one for a rank beside it to run ahead by, in zigzag, and two under way.
inline std::int64_t slots_for(std::int64_t pieces_of_a_run) {
  return pieces_of_a_run + 2;
}
// And of its own on their way out, or home.
inline constexpr std::int64_t own_slots = 2;

// A rank's positions on an axis.
std::int64_t local_length(const std::vector<Range>& runs);

}  // namespace attend::inline v1
