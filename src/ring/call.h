// The arguments that both passes have in common, checked; and where pieces of keys lie in memory.
#pragma once

#include "attention/piecewise.h"
#include "ring/conveyor.h"
#include "ring/gather.h"
#include "ring/route.h"

namespace attend::inline v1 {

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

struct RingCall {
  Positions positions;
  OwnRows rows;
  View k, v;                     // this rank's, of four axes
  std::vector<KeyPiece> pieces;  // in order
  std::vector<QueryRun> runs;    // from the last to the first
  int rank = 0;
  PieceShape shape;
  Facts facts;

  // Throws Error.
  static RingCall check(const char* function, RingTransport& ranks, const View& q, const View& k, const View& v,
                        const RingSharding& sharding, const AttentionOptions& options);
  // Cuts the keys; what ranks must agree on in it.
  void cut(const RingSharding& sharding, std::int64_t piece_keys);

  const Problem& problem() const { return rows.base; }
  const KeyPiece& piece_of(const Hop& hop) const { return pieces[static_cast<std::size_t>(hop.piece)]; }
  bool has(const KeyPiece& piece) const { return piece.owner == rank; }

  // Parts of this rank's rows and a piece, whose keys and values are the rank's own or in the slot.
  Problem with(const KeyPiece& piece, std::byte* slot, std::vector<Sequence> parts) const;
  // All its rows, and no keys.
  Problem without_keys() const;
  // A piece of its own, to be sent.
  void pack(const KeyPiece& piece, std::byte* slot) const;
};

// A piece's part of its owner's keys, values or their gradients [B,Hkv,Tk_local,...].
template <class AnyView>
AnyView own_part(const AnyView& x, const KeyPiece& piece) {
  return x.slice(2, piece.local, piece.local + piece.count());
}

}  // namespace attend::inline v1
