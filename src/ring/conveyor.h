// Pieces of keys on their way through a rank: what comes in, is computed on and goes out, side by side. The thread that
// makes the call passes messages on; another one computes meanwhile.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "attend/ring.h"

namespace attend::inline v1 {

// How long to wait before what has not happened is looked at again.
class Patience {
 public:
  // As long as nothing has happened already, so that a short message is passed on at once, and a long computation is
  // not disturbed: looking every 0.25 ms took a tenth of the time of 2 ranks on 2 cores.
  std::chrono::microseconds next() {
    const std::chrono::microseconds now = time_;
    time_ = std::min(2 * time_, longest);
    return now;
  }
  void reset() { time_ = shortest; }

 private:
  static constexpr std::chrono::microseconds shortest{20}, longest{5000};
  std::chrono::microseconds time_ = shortest;
};

// A part of a slot's memory.
struct Bytes {
  std::int64_t offset = 0, count = 0;
};

// A message, from or to a peer.
struct Transfer {
  int peer = -1;  // -1: none
  int tag = 0;
  Bytes bytes;
};

// A piece that passes through a line: it is received, filled in or found where it is, computed on, and sent on.
struct Hop {
  std::int64_t piece = 0;
  Transfer receive;
  bool fills = false;  // by the line's fill(), where nothing is received; or after that
  bool computes = false;
  std::vector<Transfer> sends;
  bool sends_results = false;  // not before it is computed
  bool ends = false;           // nothing is computed on the piece after this
  // A line of this rank that takes this piece next, in place of a message; -1: none.
  int next_line = -1;
  bool from_line = false;  // it comes from one
};

// Hops that follow each other through the same few slots of memory, in their order.
struct HopLine {
  std::vector<Hop> hops;
  std::int64_t slots = 0, slot_bytes = 0;
  // Called by the thread that passes on, before anything is computed on or sent: what is not received.
  std::function<void(const Hop&, std::byte* slot)> fill = {};
  // Called by the thread that computes, hop after hop.
  std::function<void(const Hop&, std::byte* slot)> compute = {};
  // Handing a piece on within the rank: from the slot that it is in to that of the line's.
  std::function<void(const Hop&, const std::byte* from, std::byte* slot)> take = {};
};

// Memory of the slots, allocated before anything is sent.
class Conveyor {
 public:
  // Later lines are computed on first: what is nearer to its end makes room.
  Conveyor(RingTransport& ranks, std::vector<HopLine> lines);
  ~Conveyor();
  Conveyor(const Conveyor&) = delete;
  Conveyor& operator=(const Conveyor&) = delete;

  std::int64_t bytes() const;
  // Until every hop is through. Where it throws, the other ranks are told, and the slots' memory stays allocated: what
  // is under way may still be written there.
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::inline v1
