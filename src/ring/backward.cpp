#include "ring/backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/backward_schedule.h"
#include "core/axes.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "kernels/targets.h"
#include "ring/call.h"

namespace attend::inline v1 {

namespace {

constexpr const char* backward_function = "ring_attention_backward";
constexpr int most_tags = 32000;

// Messages of one tag from one rank to another come from one line of hops, so that they keep its order.
class Tags {
 public:
  explicit Tags(const char* caller, const std::vector<QueryRun>& runs) : in_rank_(runs.size()) {
    std::vector<int> of_rank;
    for (std::size_t n = 0; n < runs.size(); ++n) {
      const auto rank = static_cast<std::size_t>(runs[n].rank);
      if (of_rank.size() <= rank) of_rank.resize(rank + 1);
      in_rank_[n] = of_rank[rank]++;
      most_ = std::max(most_, of_rank[rank]);
    }
    if (std::ssize(runs) * (most_ + 2) > most_tags)
      fail(ErrorCode::bad_value, caller, "sharding: {} runs of queries, {} of one rank, are too many", runs.size(),
           most_);
  }

  int from_owner(std::size_t to) const { return tag(to, 0); }
  int from_run(std::size_t from, std::size_t to) const { return tag(to, 1 + in_rank_[from]); }
  int to_owner(std::size_t from) const { return tag(from, 1 + most_); }

 private:
  int tag(std::size_t run, int kind) const { return static_cast<int>(run) * (most_ + 2) + kind; }

  std::vector<int> in_rank_;
  int most_ = 0;
};

class BackwardPass {
 public:
  BackwardPass(RingTransport& ranks, const View& dout, const View& q, const View& k, const View& v, const View& out,
               const View& lse, const RingSharding& sharding, const AttentionOptions& options,
               const BackwardOptions& backward, const RingOptions& ring, int threads)
      : call_(RingCall::check(backward_function, ranks, q, k, v, sharding, options)) {
    if (!backward.lse_low)
      fail(ErrorCode::bad_value, backward_function, "lse_low is not given: ring_attention() gave it");
    const Problem& base = call_.problem();
    const BackwardProblem checked = call_.rows.check_backward(backward_function, dout, out, lse, options, backward);
    dout_ = checked.dout, out_ = checked.out, lse_ = checked.lse, lse_low_ = checked.lse_low, dlse_ = checked.dlse;
    result_ = new_gradients(q, k, v, options, backward);
    dk_ = with_axes(result_.dk.view(), 4), dv_ = with_axes(result_.dv.view(), 4);
    options_ = checked.options;
    BackwardProblem all = problem(base);
    bias_sums_ = place_bias_sums(all, views_of(result_));
    options_ = all.options;
    statistics_ = Tensor::uninitialized({base.B, base.H, base.Tq, 3});
    // As a schedule of rows without keys has it.
    const Problem rows = call_.without_keys();
    row_sums_ = Tensor::uninitialized(
        {base.B, base.H, base.Tq, rows.parts.empty() ? 0 : make_backward_schedule(problem(rows)).row_floats});
    const std::int64_t piece =
        choose_piece(backward_function, sharding, ring, backward_pieces(base.sizes(), base.B * base.Hkv, threads));
    call_.cut(sharding, piece);
    conveyor_.emplace(ranks, lines(sharding, piece));
    for (const TensorOption& option : tensor_options())
      if (option.wanted)
        call_.facts.emplace_back(fmt::format("d{}", option.name), backward.*option.wanted ? "wanted" : "not wanted");
    call_.facts.emplace_back("dlse", backward.dlse ? "given" : "not given");
  }

  const Facts& facts() const { return call_.facts; }

  AttentionGradients run() {
    options_.clear();  // of a rank without rows too
    step(call_.without_keys(), {0, 0}, CarriedGradients::Step::begin, {}, {});
    conveyor_->run();
    step(call_.without_keys(), {0, 0}, CarriedGradients::Step::end, {}, {});
    BackwardProblem all = problem(call_.problem());
    all.options = std::move(options_);
    store_options(all, views_of(result_), bias_sums_);
    return std::move(result_);
  }

 private:
  // ---- One step of the computation ----

  BackwardProblem problem(const Problem& of) {
    return {of, dout_, out_, lse_, lse_low_, dlse_, with_axes(result_.dq.view(), 4), dk_, dv_, options_};
  }

  // Adds to the rows' sums, and to dk and dv of the part's keys, which stand there in the whole.
  void step(const Problem& part, const Range& keys, CarriedGradients::Step at, const MutableView& dk,
            const MutableView& dv) {
    if (part.parts.empty()) return;
    BackwardProblem x = problem(part);
    x.options = std::move(options_);
    const std::optional<MutableView> bias = x.options.bias;
    if (bias) x.options.bias = bias->slice(3, keys.begin, keys.end);
    x.carried = {at, statistics_.view(), row_sums_.view(), dk, dv};
    run_backward(x, make_backward_schedule(x));
    options_ = std::move(x.options);
    options_.bias = bias;
  }

  void compute(std::size_t run, const Hop& hop, std::byte* slot) {
    const KeyPiece& piece = call_.piece_of(hop);
    const std::int64_t n = piece.count();
    const QueryRun& rows = call_.runs[run];
    const MutableView dk = call_.shape.dk(slot, n), dv = call_.shape.dv(slot, n);
    std::vector<Sequence> parts;
    call_.positions.add_parts(rows.queries, rows.local, piece.keys, parts);
    step(call_.with(piece, slot, std::move(parts)), piece.keys, CarriedGradients::Step::piece, dk, dv);
    if (!hop.ends) return;
    // No other run meets it. Where k and v were there is room for what goes home.
    const auto scale = static_cast<float>(call_.problem().common.scale);
    store_key_gradients(dk, scale, call_.has(piece) ? own_part(dk_, piece) : call_.shape.k(slot, n));
    store_key_gradients(dv, 1, call_.has(piece) ? own_part(dv_, piece) : call_.shape.v(slot, n));
  }

  // ---- What passes through ----

  std::vector<HopLine> lines(const RingSharding& sharding, std::int64_t piece_keys) {
    const PieceBytes bytes{[this](std::int64_t n) { return call_.shape.keys(n, false); },
                           [this](std::int64_t n) { return call_.shape.gradients(n); },
                           [this](std::int64_t n) { return call_.shape.keys(n, true); }};
    BackwardHops hops = backward_hops(backward_function, call_.positions, call_.runs, call_.pieces, call_.rank, bytes);
    std::vector<HopLine> list;
    for (std::size_t at = 0; at < hops.run.size(); ++at) {
      HopLine line{.hops = std::move(hops.of_run[at]),
                   .slots = slots_for(pieces_of_run(sharding, piece_keys)),
                   .slot_bytes = bytes.all(piece_keys).count};
      line.fill = [this](const Hop& hop, std::byte* slot) { begin_piece(hop, slot); };
      line.compute = [this, run = hops.run[at]](const Hop& hop, std::byte* slot) { compute(run, hop, slot); };
      line.take = [this, bytes](const Hop& hop, const std::byte* from, std::byte* slot) {
        std::copy_n(from, bytes.all(call_.piece_of(hop).count()).count, slot);
      };
      list.push_back(std::move(line));
    }
    HopLine out{.hops = std::move(hops.own), .slots = own_slots, .slot_bytes = bytes.keys(piece_keys).count};
    out.fill = [this](const Hop& hop, std::byte* slot) { call_.pack(call_.piece_of(hop), slot); };
    HopLine home{.hops = std::move(hops.home), .slots = own_slots, .slot_bytes = bytes.keys(piece_keys).count};
    home.fill = [this](const Hop& hop, std::byte* slot) { unpack(hop, slot); };
    list.push_back(std::move(out));
    list.push_back(std::move(home));
    return list;
  }

  void begin_piece(const Hop& hop, std::byte* slot) {
    const KeyPiece& piece = call_.piece_of(hop);
    const Bytes gradients = call_.shape.gradients(piece.count());
    std::fill_n(slot + gradients.offset, gradients.count, std::byte{0});
    if (call_.has(piece) && !hop.ends) call_.pack(piece, slot);
  }

  // dk and dv of a piece that came home; or 0, where no query sees it.
  void unpack(const Hop& hop, std::byte* slot) {
    const KeyPiece& piece = call_.piece_of(hop);
    const std::int64_t n = piece.count();
    if (hop.receive.peer < 0) std::fill_n(slot, call_.shape.keys(n, false).count, std::byte{0});
    own_part(dk_, piece).copy_from(call_.shape.k(slot, n));
    own_part(dv_, piece).copy_from(call_.shape.v(slot, n));
  }

  RingCall call_;
  View dout_, out_, lse_;
  std::optional<View> lse_low_, dlse_;
  AttentionGradients result_;
  MutableView dk_, dv_;
  OptionSums options_;
  std::optional<Tensor> bias_sums_;
  Tensor statistics_, row_sums_;
  std::optional<Conveyor> conveyor_;
};

}  // namespace

PieceLimits backward_pieces(const kernels::Sizes& sizes, std::int64_t key_heads, int threads) {
  const std::int64_t stretch = divide_up(kernels::target().backward.keys(sizes), whole_tiles) * whole_tiles;
  const std::int64_t stretches = divide_up(2 * std::int64_t{threads}, std::max<std::int64_t>(1, key_heads));
  const std::int64_t least = std::max<std::int64_t>(1, stretches) * stretch;
  return {.per_run = 16, .least = least, .most = std::max<std::int64_t>(least, 3072)};
}

std::vector<std::size_t> visits_of(const Positions& positions, const std::vector<QueryRun>& runs,
                                   const KeyPiece& piece) {
  std::vector<std::size_t> visits;
  for (std::size_t n = 0; n < runs.size(); ++n)
    if (positions.meet(runs[n].queries, piece.keys)) visits.push_back(n);
  return visits;
}

BackwardHops backward_hops(const char* caller, const Positions& positions, const std::vector<QueryRun>& runs,
                           const std::vector<KeyPiece>& pieces, int rank, const PieceBytes& bytes) {
  const Tags tags(caller, runs);
  BackwardHops hops;
  std::vector<int> line_of(runs.size(), -1);
  for (std::size_t n = 0; n < runs.size(); ++n) {
    if (runs[n].rank != rank) continue;
    line_of[n] = static_cast<int>(hops.run.size());
    hops.run.push_back(n);
  }
  hops.of_run.resize(hops.run.size());
  for (std::size_t number = 0; number < pieces.size(); ++number) {
    const KeyPiece& piece = pieces[number];
    const std::int64_t n = piece.count();
    const std::vector<std::size_t> visits = visits_of(positions, runs, piece);
    Hop hop{.piece = static_cast<std::int64_t>(number), .receive = {}, .sends = {}};
    const bool is_own = piece.owner == rank;
    if (visits.empty() && is_own) hops.home.push_back(hop), hops.home.back().fills = true;
    if (visits.empty()) continue;
    // Whether k and v are still needed by another rank than the owner, from that visit on.
    const auto needs_keys = [&](std::size_t at) {
      return std::any_of(visits.begin() + static_cast<std::ptrdiff_t>(at), visits.end(),
                         [&](std::size_t visit) { return runs[visit].rank != piece.owner; });
    };
    const auto bytes_to = [&](std::size_t at) { return needs_keys(at) ? bytes.all(n) : bytes.gradients(n); };
    const auto rank_of = [&](std::size_t at) { return runs[visits[at]].rank; };
    const std::size_t last = visits.size() - 1;
    if (is_own && rank_of(0) != rank) {
      hops.own.push_back(hop);
      hops.own.back().fills = true;
      hops.own.back().sends.push_back({rank_of(0), tags.from_owner(visits[0]), bytes.keys(n)});
    }
    for (std::size_t at = 0; at <= last; ++at) {
      if (rank_of(at) != rank) continue;
      Hop here = hop;
      here.computes = here.sends_results = true;
      here.fills = at == 0, here.ends = at == last;
      if (at == 0 && !is_own) here.receive = {piece.owner, tags.from_owner(visits[0]), bytes.keys(n)};
      if (at > 0 && rank_of(at - 1) == rank) here.from_line = true;
      if (at > 0 && rank_of(at - 1) != rank)
        here.receive = {rank_of(at - 1), tags.from_run(visits[at - 1], visits[at]), bytes_to(at)};
      if (at < last && rank_of(at + 1) == rank) here.next_line = line_of[visits[at + 1]];
      if (at < last && rank_of(at + 1) != rank)
        here.sends.push_back({rank_of(at + 1), tags.from_run(visits[at], visits[at + 1]), bytes_to(at + 1)});
      if (at == last && !is_own) here.sends.push_back({piece.owner, tags.to_owner(visits[at]), bytes.keys(n)});
      hops.of_run[static_cast<std::size_t>(line_of[visits[at]])].push_back(here);
    }
    if (is_own && rank_of(last) != rank) {
      hops.home.push_back(hop);
      hops.home.back().fills = true;
      hops.home.back().receive = {rank_of(last), tags.to_owner(visits[last]), bytes.keys(n)};
    }
  }
  return hops;
}

AttentionGradients ring_attention_backward(RingTransport& ranks, const View& dout, const View& q, const View& k,
                                           const View& v, const View& out, const View& lse,
                                           const RingSharding& sharding, const AttentionOptions& options,
                                           const BackwardOptions& backward, const RingOptions& ring) {
  const int threads = most_threads(ranks, backward_function);
  std::optional<BackwardPass> pass;
  agree(ranks, backward_function, [&] {
    pass.emplace(ranks, dout, q, k, v, out, lse, sharding, options, backward, ring, threads);
    return pass->facts();
  });
  AttentionGradients result;
  settle(ranks, backward_function, [&] { result = pass->run(); });
  return result;
}

}  // namespace attend::inline v1
