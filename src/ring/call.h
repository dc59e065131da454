// The arguments that both passes have in common, checked; and where pieces of keys lie in memory.
#pragma once

#include "attention/whole.h"
#include "ring/conveyor.h"
#include "ring/gather.h"
#include "ring/route.h"

namespace attend {

struct RingCall {
  Positions positions;
  OwnRows rows;
  View k, v;                     // this rank's, of four axes
  std::vector<KeyPiece> pieces;  // in order
  std::vector<QueryRun> runs;    // from the last to the first
  int rank = 0;
  Facts facts;

  // Throws Error.
  static RingCall check(const char* function, RingTransport& ranks, const View& q, const View& k, const View& v,
                        const RingSharding& sharding, const AttentionOptions& options);
  // Cuts the keys; what ranks must agree on in it.
  void cut(const RingSharding& sharding, std::int64_t piece_keys);

  const Problem& problem() const { return rows.base; }
  // What of a run of this rank meets a piece; keys k and v.
  Problem part(const View& keys, const View& values, const Range& place, std::vector<Sequence> parts) const {
    return rows.with(keys, values, place, std::move(parts));
  }
  // This rank's keys or values of a piece of its own.
  View own(const View& x, const KeyPiece& piece) const {
    return x.slice(2, piece.local, piece.local + piece.keys.end - piece.keys.begin);
  }
};

// Shapes that do not depend on the rank.
struct PieceShape {
  std::int64_t B = 0, Hkv = 0, D = 0, Dv = 0;
  DType dtype = DType::f32;

  // Memory of n keys: k, v, and where `gradients` are carried along dk, dv in f32 behind them.
  Bytes keys(std::int64_t n, bool gradients) const;
  Bytes gradients(std::int64_t n) const;  // of them the part behind k and v

  MutableView k(std::byte* slot, std::int64_t n) const;
  MutableView v(std::byte* slot, std::int64_t n) const;
  MutableView dk(std::byte* slot, std::int64_t n) const;  // f32
  MutableView dv(std::byte* slot, std::int64_t n) const;
};

PieceShape shape_of(const Problem& problem);

}  // namespace attend
