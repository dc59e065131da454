#include "ring/conveyor.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/message.h"
#include "core/parallel.h"
#include "core/signals_blocked.h"
#include "core/tensor_memory.h"

namespace attend::inline v1 {

namespace {

enum class Phase : std::uint8_t { waiting, ready, computed };

// A hop that has begun.
struct Active {
  std::size_t hop = 0;
  std::byte* slot = nullptr;
  std::int64_t receive = -1;               // the request, until it is done
  std::vector<std::int64_t> sending = {};  // likewise
  bool sent = false;                       // whether they were begun
  bool handed = false;                     // to the next line
};

bool uses_slot(const Hop& hop) {
  return hop.receive.peer >= 0 || hop.fills || hop.from_line || !hop.sends.empty() || hop.next_line >= 0;
}

// A line, and how far it is.
struct Track {
  HopLine line;
  Tensor memory;
  std::vector<std::byte*> free;
  std::vector<Active> active;
  std::size_t opened = 0;                  // hops that have begun
  std::vector<std::atomic<Phase>> phases;  // of each hop
  std::vector<std::byte*> slots;           // of each hop, once it is ready
  std::size_t next = 0;                    // the hop that is computed on next

  explicit Track(HopLine of) : line(std::move(of)), phases(line.hops.size()), slots(line.hops.size()) {
    memory = Tensor::uninitialized({line.slots * line.slot_bytes}, DType::u8);
    for (std::int64_t n = line.slots - 1; n >= 0; --n)
      free.push_back(static_cast<std::byte*>(memory.raw()) + n * line.slot_bytes);
  }
};

// What others may still write to or read from is never given back.
void keep_for_good(std::vector<std::unique_ptr<Track>>& tracks) {
  static std::mutex mutex;
  static std::vector<Tensor> kept;
  const std::lock_guard lock(mutex);
  kept.reserve(kept.size() + tracks.size());
  for (const auto& track : tracks) kept.push_back(std::move(track->memory));
}

}  // namespace

struct Conveyor::State {
  State(RingTransport& of, std::vector<HopLine> lines) : ranks(of) {
    for (HopLine& line : lines) tracks.push_back(std::make_unique<Track>(std::move(line)));
  }

  // ---- What is computed ----

  // The next hop that is ready, of the latest line that has one. False: none is.
  bool compute_one() {
    for (auto at = tracks.rbegin(); at != tracks.rend(); ++at) {
      Track& track = **at;
      const std::vector<Hop>& hops = track.line.hops;
      while (track.next < hops.size() && !hops[track.next].computes) ++track.next;
      if (track.next == hops.size() || track.phases[track.next].load(std::memory_order_acquire) != Phase::ready)
        continue;
      track.line.compute(hops[track.next], track.slots[track.next]);
      track.phases[track.next++].store(Phase::computed, std::memory_order_release);
      return true;
    }
    return false;
  }

  bool all_computed() const {
    for (const auto& track : tracks) {
      for (std::size_t n = track->next; n < track->line.hops.size(); ++n)
        if (track->line.hops[n].computes) return false;
    }
    return true;
  }

  // On a thread of its own.
  void compute_all(int threads) {
    try {
      const ThreadLimit limit(threads);
      const MemoryReuse reuse;  // scratch, piece after piece
      const InterruptCheck check([this] { return stopped.load(); });
      while (!stopped && !all_computed()) {
        const std::int64_t seen = changes;
        if (compute_one()) {
          tell();
          continue;
        }
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return changes != seen || stopped; });
      }
    } catch (...) {
      failure = std::current_exception();
      failed = true;
      tell();
    }
  }

  void tell() {
    {
      const std::lock_guard lock(mutex);
      ++changes;
    }
    changed.notify_all();
  }

  // ---- What is passed on ----

  // Whether anything went on.
  bool pass_on() {
    bool any = false;
    for (const auto& track : tracks) {
      any |= open(*track);
      bool in_order = true;
      for (std::size_t n = 0; n < track->active.size();) {
        any |= advance(*track, track->active[n], in_order);
        in_order &= track->active[n].sent;
        if (is_through(*track, track->active[n])) {
          if (track->active[n].slot) track->free.push_back(track->active[n].slot);
          track->active.erase(track->active.begin() + static_cast<std::ptrdiff_t>(n));
          any = true;
        } else {
          ++n;
        }
      }
    }
    return any;
  }

  bool open(Track& track) {
    const std::vector<Hop>& hops = track.line.hops;
    bool any = false;
    for (; track.opened < hops.size() && (!uses_slot(hops[track.opened]) || !track.free.empty()); ++track.opened) {
      const Hop& hop = hops[track.opened];
      Active active{.hop = track.opened};
      if (uses_slot(hop)) {
        active.slot = track.free.back();
        track.free.pop_back();
      }
      track.slots[track.opened] = active.slot;
      if (hop.receive.peer >= 0) {
        const Bytes bytes = hop.receive.bytes;
        active.receive = ranks.receive(hop.receive.peer, hop.receive.tag, active.slot + bytes.offset, bytes.count);
      }
      track.active.push_back(active);
      if (active.receive < 0 && !hop.from_line) become_ready(track, track.active.back());
      any = true;
    }
    return any;
  }

  void become_ready(Track& track, const Active& active) {
    const Hop& hop = track.line.hops[active.hop];
    if (hop.fills) track.line.fill(hop, active.slot);
    track.phases[active.hop].store(Phase::ready, std::memory_order_release);
    if (hop.computes) tell();
  }

  // `in_order`: whether all hops before it have sent what they send. Messages to one peer keep the order of the hops,
  // by which they are received.
  bool advance(Track& track, Active& active, bool in_order) {
    const Hop& hop = track.line.hops[active.hop];
    bool any = false;
    if (active.receive >= 0 && ranks.test(active.receive)) {
      active.receive = -1, any = true;
      become_ready(track, active);
    }
    const Phase phase = track.phases[active.hop].load(std::memory_order_acquire);
    const bool has_result = phase == Phase::computed || (phase == Phase::ready && !hop.computes);
    if (!active.sent && in_order && (hop.sends_results ? has_result : phase != Phase::waiting)) {
      for (const Transfer& send : hop.sends)
        active.sending.push_back(ranks.send(send.peer, send.tag, active.slot + send.bytes.offset, send.bytes.count));
      active.sent = any = true;
    }
    any |= std::erase_if(active.sending, [&](std::int64_t request) { return ranks.test(request); }) > 0;
    if (has_result && hop.next_line >= 0 && !active.handed) active.handed = hand_on(hop, active.slot);
    return any;
  }

  // To the slot that the next line has for this piece, once it has one.
  bool hand_on(const Hop& hop, const std::byte* from) {
    Track& next = *tracks[static_cast<std::size_t>(hop.next_line)];
    for (const Active& active : next.active) {
      const Hop& taker = next.line.hops[active.hop];
      if (!taker.from_line || taker.piece != hop.piece) continue;
      next.line.take(taker, from, active.slot);
      become_ready(next, active);
      return true;
    }
    return false;
  }

  bool is_through(const Track& track, const Active& active) const {
    const Hop& hop = track.line.hops[active.hop];
    const Phase phase = track.phases[active.hop].load(std::memory_order_acquire);
    return phase == (hop.computes ? Phase::computed : Phase::ready) && active.sent && active.sending.empty() &&
           (hop.next_line < 0 || active.handed);
  }

  bool is_done() const {
    return std::ranges::all_of(
        tracks, [](const auto& track) { return track->opened == track->line.hops.size() && track->active.empty(); });
  }

  // Until all is through. With `beside`, another thread computes.
  void pump(bool beside) {
    Patience patience;
    while (!is_done()) {
      const std::int64_t seen = changes;
      if (failed) std::rethrow_exception(failure);
      if (pass_on() || (!beside && compute_one())) {
        patience.reset();
        continue;
      }
      if (interrupt_requested()) fail(ErrorCode::interrupted, "", "interrupted: the call was asked to stop");
      std::unique_lock lock(mutex);
      changed.wait_for(lock, patience.next(), [&] { return changes != seen; });
    }
  }

  RingTransport& ranks;
  std::vector<std::unique_ptr<Track>> tracks;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<std::int64_t> changes{0};  // what one of the two threads tells the other
  std::atomic<bool> stopped{false}, failed{false};
  std::exception_ptr failure;
};

Conveyor::Conveyor(RingTransport& ranks, std::vector<HopLine> lines)
    : state_(std::make_unique<State>(ranks, std::move(lines))) {}

Conveyor::~Conveyor() = default;

std::int64_t Conveyor::bytes() const {
  std::int64_t sum = 0;
  for (const auto& track : state_->tracks) sum += track->memory.count();
  return sum;
}

void Conveyor::run() {
  State& state = *state_;
  std::thread computing;
  if (state.ranks.overlaps()) {
    try {
      const SignalsBlocked blocked;
      computing = std::thread([&state, threads = num_threads()] { state.compute_all(threads); });
    } catch (const std::system_error&) {  // no thread is to be had: this one computes too
    }
  }
  try {
    state.pump(computing.joinable());
  } catch (const std::exception& error) {
    state.stopped = true;
    state.tell();
    if (computing.joinable()) computing.join();
    keep_for_good(state.tracks);
    state.ranks.abandon(error.what());
    throw;
  }
  if (computing.joinable()) computing.join();
}

}  // namespace attend::inline v1
