#include "ring/route.h"

#include <algorithm>

#include "core/divide_up.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

void check_axis(const char* function, const char* axis, const std::vector<std::vector<Range>>& runs) {
  std::vector<Range> all;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    std::int64_t end = 0;
    for (const Range& run : runs[rank]) {
      if (run.begin < end || run.end < run.begin)
        fail(ErrorCode::bad_value, function, "sharding: {}: rank {} has a run [{},{}), expected rising ones from {} on",
             axis, rank, run.begin, run.end, end);
      end = run.end;
      if (run.end > run.begin) all.push_back(run);
    }
  }
  std::ranges::sort(all, {}, &Range::begin);
  std::int64_t end = 0;
  for (const Range& run : all) {
    if (run.begin != end)
      fail(ErrorCode::bad_value, function, "sharding: {}: positions {} to {} are in {}", axis, std::min(end, run.begin),
           std::max(end, run.begin) - 1, run.begin > end ? "no run" : "two runs");
    end = run.end;
  }
}

}  // namespace

std::int64_t local_length(const std::vector<Range>& runs) {
  std::int64_t length = 0;
  for (const Range& run : runs) length += run.end - run.begin;
  return length;
}

void check_sharding(const char* function, const RingSharding& sharding, int ranks) {
  for (const auto& [axis, runs] : {std::pair("queries", &sharding.queries), {"keys", &sharding.keys}}) {
    if (std::ssize(*runs) != ranks)
      fail(ErrorCode::bad_value, function, "sharding: {} are cut for {} ranks, there are {}", axis, std::ssize(*runs),
           ranks);
    check_axis(function, axis, *runs);
  }
}

std::vector<KeyPiece> cut_keys(const RingSharding& sharding, std::int64_t piece_keys) {
  std::vector<KeyPiece> pieces;
  for (int owner = 0; owner < sharding.ranks(); ++owner) {
    std::int64_t local = 0;
    for (const Range& run : sharding.keys[static_cast<std::size_t>(owner)]) {
      for (std::int64_t begin = run.begin; begin < run.end; begin += piece_keys) {
        const std::int64_t end = std::min(run.end, begin + piece_keys);
        pieces.push_back({{begin, end}, owner, local});
        local += end - begin;
      }
    }
  }
  std::ranges::sort(pieces, {}, [](const KeyPiece& piece) { return piece.keys.begin; });
  return pieces;
}

std::vector<QueryRun> list_runs(const RingSharding& sharding) {
  std::vector<QueryRun> list;
  for (int rank = 0; rank < sharding.ranks(); ++rank) {
    std::int64_t local = 0;
    for (const Range& run : sharding.queries[static_cast<std::size_t>(rank)]) {
      if (run.end > run.begin) list.push_back({run, rank, local});
      local += run.end - run.begin;
    }
  }
  std::ranges::sort(list, std::greater(), [](const QueryRun& run) { return run.queries.begin; });
  return list;
}

namespace {

std::int64_t longest_run(const RingSharding& sharding) {
  std::int64_t longest = 0;
  for (const std::vector<Range>& rank : sharding.keys)
    for (const Range& run : rank) longest = std::max(longest, run.end - run.begin);
  return longest;
}

}  // namespace

std::int64_t choose_piece(const char* function, const RingSharding& sharding, const RingOptions& ring,
                          const PieceLimits& limits) {
  if (ring.piece_keys < 0 || ring.piece_keys % whole_tiles != 0)
    fail(ErrorCode::bad_value, function, "piece_keys is {}, expected a multiple of {}, or 0", ring.piece_keys,
         whole_tiles);
  if (ring.piece_keys > 0) return ring.piece_keys;
  const std::int64_t longest = std::max<std::int64_t>(1, longest_run(sharding));
  const std::int64_t about = std::clamp(divide_up(longest, limits.per_run), limits.least, limits.most);
  return divide_up(divide_up(longest, divide_up(longest, about)), whole_tiles) * whole_tiles;  // all of about one size
}

std::int64_t pieces_of_run(const RingSharding& sharding, std::int64_t piece_keys) {
  return std::max<std::int64_t>(1, divide_up(longest_run(sharding), piece_keys));
}

}  // namespace attend::inline v1
