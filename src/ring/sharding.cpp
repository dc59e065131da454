#include <algorithm>

#include "attend/ring.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "ring/route.h"

namespace attend::inline v1 {

namespace {

using Runs = std::vector<std::vector<Range>>;

std::int64_t length_of(const Runs& runs) {
  std::int64_t length = 0;
  for (const std::vector<Range>& rank : runs) length += local_length(rank);
  return length;
}

// `parts` of them, whose numbers of tiles differ by one at most; the last ones have it, as with causal a zigzag
// sharding is then most even.
std::vector<Range> cut(std::int64_t length, std::int64_t parts) {
  const std::int64_t tiles = divide_up(length, whole_tiles);
  const auto begin = [&](std::int64_t n) {
    return std::min(length, (tiles / parts * n + std::max<std::int64_t>(0, n - parts + tiles % parts)) * whole_tiles);
  };
  std::vector<Range> list;
  for (std::int64_t n = 0; n < parts; ++n) list.push_back({begin(n), begin(n + 1)});
  return list;
}

void check_ranks(const char* function, int ranks, std::int64_t queries, std::int64_t keys) {
  if (ranks < 1) fail(ErrorCode::bad_value, function, "ranks is {}, expected at least 1", ranks);
  for (const auto& [name, length] : {std::pair("queries", queries), {"keys", keys}})
    if (length < 0) fail(ErrorCode::bad_value, function, "{} is {}, expected at least 0", name, length);
}

Runs zigzag_runs(int ranks, std::int64_t length) {
  const std::vector<Range> parts = cut(length, 2 * std::int64_t{ranks});
  Runs runs;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
    runs.push_back({parts[rank], parts[parts.size() - 1 - rank]});
  return runs;
}

Runs contiguous_runs(int ranks, std::int64_t length) {
  Runs runs;
  for (const Range& part : cut(length, ranks)) runs.push_back({part});
  return runs;
}

// Copies run after run between the whole and a share, along one axis.
template <class Copy>
void for_each_run(const std::vector<Range>& runs, Copy copy) {
  std::int64_t at = 0;
  for (const Range& run : runs) {
    const std::int64_t end = at + run.end - run.begin;
    copy(run, Range{at, end});
    at = end;
  }
}

int checked_axis(const char* function, const View& x, int axis) {
  const int from_front = axis < 0 ? axis + x.rank() : axis;
  if (from_front >= 0 && from_front < x.rank()) return from_front;
  fail(ErrorCode::bad_shape, function, "axis is {}, x has {}", axis, x.shape());
}

}  // namespace

std::int64_t RingSharding::Tq() const {
  return length_of(queries);
}

std::int64_t RingSharding::Tk() const {
  return length_of(keys);
}

RingSharding RingSharding::contiguous(int ranks, std::int64_t queries, std::int64_t keys) {
  check_ranks("RingSharding::contiguous", ranks, queries, keys);
  return {contiguous_runs(ranks, queries), contiguous_runs(ranks, keys)};
}

RingSharding RingSharding::zigzag(int ranks, std::int64_t queries, std::int64_t keys) {
  check_ranks("RingSharding::zigzag", ranks, queries, keys);
  return {zigzag_runs(ranks, queries), zigzag_runs(ranks, keys)};
}

Tensor ring_shard(const View& x, int axis, const std::vector<std::vector<Range>>& runs, int rank) {
  const char* function = "ring_shard";
  const int along = checked_axis(function, x, axis);
  if (rank < 0 || rank >= std::ssize(runs))
    fail(ErrorCode::bad_value, function, "rank is {}, expected 0 to {}", rank, std::ssize(runs) - 1);
  if (const std::int64_t length = length_of(runs); x.size(along) != length) {
    fail(ErrorCode::bad_shape, function, "axis {} of x {} has {} elements, the runs of all ranks {}", along, x.shape(),
         x.size(along), length);
  }
  const std::vector<Range>& own = runs[static_cast<std::size_t>(rank)];
  Dims shape = x.shape();
  shape[along] = local_length(own);
  Tensor share = Tensor::uninitialized(shape, x.dtype());
  for_each_run(own, [&](const Range& whole, const Range& here) {
    share.view().slice(along, here.begin, here.end).copy_from(x.slice(along, whole.begin, whole.end));
  });
  return share;
}

Tensor ring_unshard(const std::vector<View>& shares, int axis, const std::vector<std::vector<Range>>& runs) {
  const char* function = "ring_unshard";
  if (shares.empty() || shares.size() != runs.size())
    fail(ErrorCode::bad_shape, function, "{} shares, expected one for each of {} ranks", shares.size(), runs.size());
  const int along = checked_axis(function, shares.front(), axis);
  Dims shape = shares.front().shape();
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    shape[along] = local_length(runs[rank]);
    if (shares[rank].shape() == shape && shares[rank].dtype() == shares.front().dtype()) continue;
    fail(ErrorCode::bad_shape, function, "the share of rank {} is {} {}, expected {} {}", rank, shares[rank].dtype(),
         shares[rank].shape(), shares.front().dtype(), shape);
  }
  shape[along] = length_of(runs);
  Tensor whole = Tensor::uninitialized(shape, shares.front().dtype());
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    for_each_run(runs[rank], [&](const Range& place, const Range& here) {
      whole.view().slice(along, place.begin, place.end).copy_from(shares[rank].slice(along, here.begin, here.end));
    });
  }
  return whole;
}

}  // namespace attend::inline v1
