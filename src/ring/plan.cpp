// What a pass will do, and how long it may take: the hops of every rank, run through in the order of time with a cost
// for each computation and each message, as the conveyor runs them.
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "attend/threads.h"
#include "core/axes.h"
#include "core/message.h"
#include "ring/backward.h"
#include "ring/call.h"
#include "ring/forward.h"

namespace attend::inline v1 {

namespace {

constexpr const char* plan_function = "plan_ring";
constexpr double never = std::numeric_limits<double>::infinity();

struct LinePlan {
  std::vector<Hop> hops;
  std::int64_t slots = 0, slot_bytes = 0;
  std::vector<double> flops;  // of each hop
};

// ---- The course of time ----

class Simulation {
 public:
  Simulation(const std::vector<std::vector<LinePlan>>& ranks, const RingCosts& costs) : costs_(costs) {
    for (const std::vector<LinePlan>& lines : ranks) {
      ranks_.emplace_back();
      for (const LinePlan& line : lines)
        ranks_.back().tracks.push_back({&line, line.slots, 0, 0, std::vector<double>(line.hops.size(), never),
                                        std::vector<int>(line.hops.size())});
    }
  }

  // When each rank is done.
  std::vector<double> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) open(rank, 0), start(rank, 0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      ranks_[event.rank].end = std::max(ranks_[event.rank].end, event.time);
      event.kind == Kind::ready      ? become_ready(event)
      : event.kind == Kind::computed ? become_computed(event)
                                     : finish_send(event);
    }
    std::vector<double> ends;
    ends.reserve(ranks_.size());
    for (const Rank& rank : ranks_) ends.push_back(rank.end);
    return ends;
  }

 private:
  enum class Kind { ready, computed, sent };
  struct Place {
    std::size_t rank, line, hop;
  };
  struct Event : Place {
    double time;
    Kind kind;
    bool operator<(const Event& other) const { return time > other.time; }  // the queue's top is the earliest
  };
  struct Track {
    const LinePlan* plan;
    std::int64_t free;
    std::size_t opened, next;
    std::vector<double> ready;
    std::vector<int> open_ends;  // of a hop that has begun: what is still to happen before its slot is free
  };
  struct Rank {
    std::vector<Track> tracks;
    bool computing = false;
    double link_free = 0, end = 0;
  };
  // The two sides of messages from one rank to another of a tag, in order.
  struct Meeting {
    std::deque<Event> senders, receivers;
    std::deque<std::int64_t> bytes;
  };

  const Hop& hop_of(const Place& at) const { return ranks_[at.rank].tracks[at.line].plan->hops[at.hop]; }
  void at(double time, Kind kind, const Place& place) { events_.push({place, time, kind}); }

  void open(std::size_t rank, double time) {
    for (std::size_t line = 0; line < ranks_[rank].tracks.size(); ++line) {
      Track& track = ranks_[rank].tracks[line];
      for (; track.opened < track.plan->hops.size() && track.free > 0; ++track.opened) {
        const Place place{rank, line, track.opened};
        const Hop& hop = hop_of(place);
        --track.free;
        track.open_ends[track.opened] = static_cast<int>(hop.sends.size()) + (hop.next_line >= 0 ? 1 : 0) + 1;
        if (hop.receive.peer >= 0) {
          Meeting& meeting = meetings_[{hop.receive.peer, static_cast<int>(rank), hop.receive.tag}];
          meeting.receivers.push_back({place, time, Kind::ready});
          match(meeting, time);
        } else if (hop.from_line) {
          waiting_[{rank, line, hop.piece}] = place;
          hand_on(rank, line, hop.piece, time);
        } else {
          at(time, Kind::ready, place);
        }
      }
    }
  }

  void send(const Place& place, double time) {
    for (const Transfer& transfer : hop_of(place).sends) {
      Meeting& meeting = meetings_[{static_cast<int>(place.rank), transfer.peer, transfer.tag}];
      meeting.senders.push_back({place, time, Kind::sent});
      meeting.bytes.push_back(transfer.bytes.count);
      match(meeting, time);
    }
  }

  void match(Meeting& meeting, double time) {
    while (!meeting.senders.empty() && !meeting.receivers.empty()) {
      double& link = ranks_[meeting.senders.front().rank].link_free;
      const double begin = std::max(time, link);
      link = begin + static_cast<double>(meeting.bytes.front()) / costs_.bytes_per_second;
      at(link + costs_.latency_seconds, Kind::sent, meeting.senders.front());
      at(link + costs_.latency_seconds, Kind::ready, meeting.receivers.front());
      meeting.senders.pop_front(), meeting.receivers.pop_front(), meeting.bytes.pop_front();
    }
  }

  void become_ready(const Event& event) {
    const Hop& hop = hop_of(event);
    ranks_[event.rank].tracks[event.line].ready[event.hop] = event.time;
    if (!hop.sends_results) send(event, event.time);
    if (hop.computes) return start(event.rank, event.time);
    end_one(event, event.time);
  }

  void start(std::size_t number, double time) {
    Rank& rank = ranks_[number];
    if (rank.computing) return;
    for (std::size_t line = rank.tracks.size(); line-- > 0;) {
      Track& track = rank.tracks[line];
      const std::vector<Hop>& hops = track.plan->hops;
      while (track.next < hops.size() && !hops[track.next].computes) ++track.next;
      if (track.next == hops.size() || track.ready[track.next] > time) continue;
      rank.computing = true;
      at(time + track.plan->flops[track.next] / costs_.flops_per_second, Kind::computed, {number, line, track.next});
      ++track.next;
      return;
    }
  }

  void become_computed(const Event& event) {
    const Hop& hop = hop_of(event);
    ranks_[event.rank].computing = false;
    if (hop.sends_results) send(event, event.time);
    if (hop.next_line >= 0) {
      results_[{event.rank, static_cast<std::size_t>(hop.next_line), hop.piece}] = event;
      hand_on(event.rank, static_cast<std::size_t>(hop.next_line), hop.piece, event.time);
    }
    end_one(event, event.time);
    start(event.rank, event.time);
  }

  void hand_on(std::size_t rank, std::size_t line, std::int64_t piece, double time) {
    const auto key = std::tuple(rank, line, piece);
    const auto from = results_.find(key), to = waiting_.find(key);
    if (from == results_.end() || to == waiting_.end()) return;
    at(time, Kind::ready, to->second);
    at(time, Kind::sent, from->second);
    results_.erase(from), waiting_.erase(to);
  }

  void finish_send(const Event& event) { end_one(event, event.time); }

  void end_one(const Place& place, double time) {
    Track& track = ranks_[place.rank].tracks[place.line];
    if (--track.open_ends[place.hop] > 0) return;
    ++track.free;
    open(place.rank, time);
  }

  const RingCosts& costs_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event> events_;
  std::map<std::tuple<int, int, int>, Meeting> meetings_;
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, Place> waiting_, results_;
};

// ---- What each rank does ----

struct Whole {
  Positions positions;
  PieceShape shape;
  std::vector<KeyPiece> pieces;
  std::vector<QueryRun> runs;
  std::int64_t H = 0, piece_keys = 0, pieces_of_run = 0;

  double flops(const QueryRun& run, const Hop& hop) const {
    return 2.0 * static_cast<double>(H * (shape.D + shape.Dv)) *
           positions.pairs(run.queries, pieces[static_cast<std::size_t>(hop.piece)].keys);
  }
};

std::vector<LinePlan> forward_lines(const Whole& x, int rank, int ranks) {
  ForwardHops hops =
      forward_hops(x.positions, x.runs, x.pieces, rank, ranks, [&](std::int64_t n) { return x.shape.keys(n, false); });
  const std::int64_t bytes = x.shape.keys(x.piece_keys, false).count;
  std::vector<LinePlan> lines;
  for (std::vector<Hop>* own : {&hops.below, &hops.above}) {
    const std::size_t count = own->size();
    lines.push_back({std::move(*own), own_slots, bytes, std::vector<double>(count)});
  }
  lines.push_back({std::move(hops.all), slots_for(x.pieces_of_run), bytes, {}});
  for (const Hop& hop : lines.back().hops) {
    double& sum = lines.back().flops.emplace_back(0);
    for (const QueryRun& run : x.runs)
      if (run.rank == rank) sum += x.flops(run, hop);
  }
  return lines;
}

std::vector<LinePlan> backward_lines(const Whole& x, int rank) {
  const PieceBytes bytes{[&](std::int64_t n) { return x.shape.keys(n, false); },
                         [&](std::int64_t n) { return x.shape.gradients(n); },
                         [&](std::int64_t n) { return x.shape.keys(n, true); }};
  BackwardHops hops = backward_hops(plan_function, x.positions, x.runs, x.pieces, rank, bytes);
  std::vector<LinePlan> lines;
  for (std::size_t at = 0; at < hops.run.size(); ++at) {
    LinePlan line{std::move(hops.of_run[at]), slots_for(x.pieces_of_run), bytes.all(x.piece_keys).count, {}};
    for (const Hop& hop : line.hops) line.flops.push_back(2.5 * x.flops(x.runs[hops.run[at]], hop));
    lines.push_back(std::move(line));
  }
  for (std::vector<Hop>* list : {&hops.own, &hops.home}) {
    const std::size_t count = list->size();
    lines.push_back({std::move(*list), own_slots, bytes.keys(x.piece_keys).count, std::vector<double>(count)});
  }
  return lines;
}

// Of the whole's shapes, with so many queries and keys on each rank.
void add_memory(RingRankPlan& plan, const Whole& x, std::int64_t Tq, std::int64_t Tk, bool backward) {
  const std::int64_t B = x.shape.B, D = x.shape.D, Dv = x.shape.Dv, size = size_of(x.shape.dtype);
  const std::int64_t rows = B * x.H * Tq, keys = B * x.shape.Hkv * Tk;
  plan.share_bytes = (backward ? 2 : 1) * (rows * (D + Dv) + keys * (D + Dv)) * size + rows * 8;
  plan.state_bytes = rows * 4 * (backward ? 3 + D : Dv + kernels::carried_numbers);
}

RingPlan make_plan(const Dims& q, const Dims& k, const Dims& v, DType dtype, const RingSharding& sharding,
                   const AttentionOptions& options, bool backward, const RingCosts& costs, const RingOptions& ring) {
  const int ranks = sharding.ranks();
  check_sharding(plan_function, sharding, ranks);
  Whole x{.positions = Positions::check(plan_function, q, k, v, dtype, options), .shape = {}, .pieces = {}, .runs = {}};
  const View Q = with_axes(View(nullptr, dtype, q), 4), K = with_axes(View(nullptr, dtype, k), 4);
  for (const auto& [name, given, expected] :
       {std::tuple("q", Q.size(2), sharding.Tq()), {"k", K.size(2), sharding.Tk()}})
    if (given != expected)
      fail(ErrorCode::bad_shape, plan_function, "{} has {} positions, the sharding {}", name, given, expected);
  x.shape = {K.size(0), K.size(1), K.size(3), v[v.rank() - 1], dtype};
  x.H = Q.size(1);
  x.piece_keys = choose_piece(
      plan_function, sharding, ring,
      backward ? backward_pieces({x.H / std::max<std::int64_t>(1, x.shape.Hkv), x.shape.D, x.shape.Dv, dtype},
                                 x.shape.B * x.shape.Hkv, num_threads())
               : forward_pieces);
  x.pieces_of_run = pieces_of_run(sharding, x.piece_keys);
  x.pieces = cut_keys(sharding, x.piece_keys), x.runs = list_runs(sharding);

  std::vector<std::vector<LinePlan>> lines;
  RingPlan plan{.piece_keys = x.piece_keys, .ranks = {}};
  double flops = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    lines.push_back(backward ? backward_lines(x, rank) : forward_lines(x, rank, ranks));
    RingRankPlan& own = plan.ranks.emplace_back();
    const auto at = static_cast<std::size_t>(rank);
    add_memory(own, x, local_length(sharding.queries[at]), local_length(sharding.keys[at]), backward);
    for (const LinePlan& line : lines.back()) {
      own.in_flight_bytes += line.slots * line.slot_bytes;
      for (const double each : line.flops) own.flops += each;
      for (const Hop& hop : line.hops) {
        if (hop.receive.peer >= 0) own.received_bytes += hop.receive.bytes.count;
        for (const Transfer& send : hop.sends) own.sent_bytes += send.bytes.count, ++own.sends;
      }
    }
    flops += own.flops;
  }
  const std::vector<double> ends = Simulation(lines, costs).run();
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    plan.ranks[rank].seconds = ends[rank];
    plan.seconds = std::max(plan.seconds, ends[rank]);
  }
  if (plan.seconds > 0) plan.efficiency = flops / (ranks * costs.flops_per_second * plan.seconds);
  return plan;
}

}  // namespace

RingPlan plan_ring(const Dims& q, const Dims& k, const Dims& v, DType dtype, const RingSharding& sharding,
                   const AttentionOptions& options, bool backward, const RingCosts& costs, const RingOptions& ring) {
  for (const auto& [name, cost, least] : {std::tuple("flops_per_second", costs.flops_per_second, 1e-300),
                                          {"bytes_per_second", costs.bytes_per_second, 1e-300},
                                          {"latency_seconds", costs.latency_seconds, 0.0}})
    if (!(cost >= least && cost < never))
      fail(ErrorCode::bad_value, plan_function, "{} is {}, expected a finite number {} 0", name, cost,
           least > 0 ? "above" : "of at least");
  return make_plan(q, k, v, dtype, sharding, options, backward, costs, ring);
}

}  // namespace attend::inline v1
