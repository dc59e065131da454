#include "ring/forward.h"

#include <algorithm>

#include "ring/call.h"

namespace attend::inline v1 {

namespace {

constexpr const char* forward_function = "ring_attention";

// From an owner, and from one who read it.
constexpr int owner_tag = 0, reader_tag = 1;

class ForwardPass {
 public:
  ForwardPass(RingTransport& ranks, const View& q, const View& k, const View& v, const RingSharding& sharding,
              const AttentionOptions& options, const RingOptions& ring)
      : call_(RingCall::check(forward_function, ranks, q, k, v, sharding, options)),
        sums_(begin_sums(call_.rows)),
        piece_(choose_piece(forward_function, sharding, ring, forward_pieces)) {
    call_.cut(sharding, piece_);
    const Problem& p = call_.problem();
    const Dims out{p.B, p.H, p.Tq, p.Dv}, rows{p.B, p.H, p.Tq};
    const auto numbers = [&] { return Tensor::uninitialized(p.trim(rows), DType::f32); };
    result_ = {Tensor::uninitialized(p.trim(out), p.q.dtype()), numbers(), numbers()};
    to_ = {result_.out.view().reshape(out), result_.lse.view().reshape(rows), result_.lse_low->view().reshape(rows)};
    conveyor_.emplace(ranks, lines(sharding));
  }

  const Facts& facts() const { return call_.facts; }

  AttentionResult run() {
    conveyor_->run();
    const Problem rows = call_.without_keys();
    if (!rows.parts.empty()) finish_sums(rows, sums_.view(), to_);
    return std::move(result_);
  }

 private:
  std::vector<HopLine> lines(const RingSharding& sharding) {
    const std::int64_t bytes = call_.shape.keys(piece_, false).count;
    ForwardHops hops = forward_hops(call_.positions, call_.runs, call_.pieces, call_.rank, sharding.ranks(),
                                    [this](std::int64_t n) { return call_.shape.keys(n, false); });
    std::vector<HopLine> list;
    for (std::vector<Hop>* own : {&hops.below, &hops.above}) {
      HopLine line{.hops = std::move(*own), .slots = own_slots, .slot_bytes = bytes};
      line.fill = [this](const Hop& hop, std::byte* slot) { call_.pack(call_.piece_of(hop), slot); };
      list.push_back(std::move(line));
    }
    HopLine all{.hops = std::move(hops.all), .slots = slots_for(pieces_of_run(sharding, piece_)), .slot_bytes = bytes};
    all.compute = [this](const Hop& hop, std::byte* slot) { compute(call_.piece_of(hop), slot); };
    list.push_back(std::move(all));
    return list;
  }

  void compute(const KeyPiece& piece, std::byte* slot) {
    std::vector<Sequence> parts;
    for (const QueryRun& run : call_.runs)
      if (run.rank == call_.rank) call_.positions.add_parts(run.queries, run.local, piece.keys, parts);
    add_keys(call_.with(piece, slot, std::move(parts)), sums_.view());
  }

  RingCall call_;
  Tensor sums_;
  std::int64_t piece_;
  AttentionResult result_;
  ResultViews to_;
  std::optional<Conveyor> conveyor_;
};

}  // namespace

Readers readers_of(const Positions& positions, const std::vector<QueryRun>& runs, const KeyPiece& piece, int ranks) {
  std::vector<bool> needs(static_cast<std::size_t>(ranks));
  for (const QueryRun& run : runs) {
    auto needed = needs[static_cast<std::size_t>(run.rank)];
    if (!needed) needs[static_cast<std::size_t>(run.rank)] = positions.meet(run.queries, piece.keys);
  }
  Readers readers;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!needs[static_cast<std::size_t>(rank)]) continue;
    if (rank == piece.owner) readers.owner = true;
    if (rank < piece.owner) readers.below.push_back(rank);
    if (rank > piece.owner) readers.above.push_back(rank);
  }
  return readers;
}

ForwardHops forward_hops(const Positions& positions, const std::vector<QueryRun>& runs,
                         const std::vector<KeyPiece>& pieces, int rank, int ranks,
                         const std::function<Bytes(std::int64_t)>& bytes_of) {
  ForwardHops hops;
  for (std::size_t n = 0; n < pieces.size(); ++n) {
    const KeyPiece& piece = pieces[n];
    const Bytes bytes = bytes_of(piece.count());
    const Readers readers = readers_of(positions, runs, piece, ranks);
    Hop hop{.piece = static_cast<std::int64_t>(n), .receive = {}, .sends = {}};
    if (piece.owner == rank) {
      if (readers.owner) {
        Hop here = hop;
        here.computes = true;
        hops.all.push_back(here);
      }
      hop.fills = true;
      const auto send = [&](const std::vector<int>& chain, std::vector<Hop>& to) {
        if (!chain.empty()) to.push_back(hop), to.back().sends.push_back({chain.front(), owner_tag, bytes});
      };
      send(readers.below, hops.below);
      send(readers.above, hops.above);
      continue;
    }
    for (const std::vector<int>* chain : {&readers.below, &readers.above}) {
      const auto at = std::ranges::find(*chain, rank);
      if (at == chain->end()) continue;
      hop.computes = true;
      hop.receive =
          at == chain->begin() ? Transfer{piece.owner, owner_tag, bytes} : Transfer{*(at - 1), reader_tag, bytes};
      if (at + 1 != chain->end()) hop.sends.push_back({*(at + 1), reader_tag, bytes});
      hops.all.push_back(hop);
    }
  }
  return hops;
}

AttentionResult ring_attention(RingTransport& ranks, const View& q, const View& k, const View& v,
                               const RingSharding& sharding, const AttentionOptions& options, const RingOptions& ring) {
  std::optional<ForwardPass> pass;
  agree(ranks, forward_function, [&] {
    pass.emplace(ranks, q, k, v, sharding, options, ring);
    return pass->facts();
  });
  AttentionResult result;
  settle(ranks, forward_function, [&] { result = pass->run(); });
  return result;
}

}  // namespace attend::inline v1
