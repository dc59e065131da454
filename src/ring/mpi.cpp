#include "attend/mpi.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/message.h"

namespace attend::inline v1 {
namespace {

// MPI counts in int. The parts of a message follow each other in order, as all that one rank sends with one tag.
constexpr std::int64_t most_of_a_message = std::int64_t{1} << 30;

// Why a rank has given up, as it is sent: cut to what fits.
struct Farewell {
  std::array<char, 1024> text{};
};
constexpr int farewell_tag = 0;

std::string reason_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("MPI's error {}", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

void require(int code, const char* what) {
  if (code != MPI_SUCCESS) fail(ErrorCode::lost_rank, "MpiRanks", "{}: {}", what, reason_of(code));
}

// One with handles of its own, whose errors are returned.
MPI_Comm duplicate(MPI_Comm comm) {
  MPI_Comm made = MPI_COMM_NULL;
  require(MPI_Comm_dup(comm, &made), "the communicator can't be duplicated");
  MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  return made;
}

bool is_initialized() {
  int yes = 0, over = 0;
  return MPI_Initialized(&yes) == MPI_SUCCESS && yes != 0 && MPI_Finalized(&over) == MPI_SUCCESS && over == 0;
}

int query_thread_level() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level;
}

// It is done, one way or the other, unless its message had begun to come from a rank that then died.
void cancel_receive(MPI_Request& request) {
  MPI_Cancel(&request);
  const auto begin = std::chrono::steady_clock::now();
  int done = 0;
  while (done == 0 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(5))
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
  if (done == 0) MPI_Request_free(&request);
}

void check(MPI_Comm comm) {
  if (!is_initialized())
    fail(ErrorCode::bad_value, "MpiRanks", "MPI is not initialised, or is finalised: call MPI_Init_thread() before");
  int main_thread = 0, between_groups = 0;
  MPI_Is_thread_main(&main_thread);
  if (query_thread_level() < MPI_THREAD_SERIALIZED && main_thread == 0)
    fail(ErrorCode::bad_value, "MpiRanks",
         "MPI was initialised by another thread, with MPI_THREAD_SINGLE or FUNNELED: it takes no calls from this one");
  if (comm == MPI_COMM_NULL) fail(ErrorCode::bad_value, "MpiRanks", "comm is MPI_COMM_NULL");
  MPI_Comm_test_inter(comm, &between_groups);
  if (between_groups != 0) fail(ErrorCode::bad_value, "MpiRanks", "comm is an intercommunicator, expected one group");
}

}  // namespace

struct MpiRanks::State {
  // Begun, and not known to be done.
  struct Pending {
    bool receives;
    int other;
    std::vector<MPI_Request> parts;
  };

  explicit State(MPI_Comm comm) : messages(duplicate(comm)), farewells(duplicate(comm)) {
    MPI_Comm_rank(messages, &rank);
    MPI_Comm_size(messages, &size);
    level = query_thread_level();
    listen();
  }

  void listen() {
    require(MPI_Irecv(&heard, sizeof heard, MPI_BYTE, MPI_ANY_SOURCE, farewell_tag, farewells, &hearing), "a receive");
  }

  // A message, or its part, begun by `one_part`.
  template <class Memory, class Begin>
  std::int64_t begin(bool receives, int other, Memory* data, std::int64_t bytes, Begin one_part) {
    require_alive();
    Pending pending{receives, other, {}};
    std::int64_t at = 0;
    do {
      const std::int64_t count = std::min(bytes - at, most_of_a_message);
      pending.parts.push_back(MPI_REQUEST_NULL);
      require_of(other, one_part(data + at, static_cast<int>(count), &pending.parts.back()));
      at += count;
    } while (at < bytes);
    const std::int64_t number = next++;
    begun.emplace(number, std::move(pending));
    return number;
  }

  bool test(std::int64_t number) {
    hear();
    require_alive();
    const auto found = begun.find(number);
    if (found == begun.end()) fail(ErrorCode::bad_value, "MpiRanks::test", "no request has the number {}", number);
    Pending& pending = found->second;
    int done = 0;
    std::vector<MPI_Status> states(pending.parts.size());
    int code = MPI_Testall(static_cast<int>(pending.parts.size()), pending.parts.data(), &done, states.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& state : states)
        if (state.MPI_ERROR != MPI_SUCCESS && state.MPI_ERROR != MPI_ERR_PENDING) code = state.MPI_ERROR;
    }
    require_of(pending.other, code);
    if (done == 0) return false;
    begun.erase(found);
    return true;
  }

  // Whether another rank has given up meanwhile.
  void hear() {
    if (!lost.empty()) return;
    int done = 0;
    MPI_Status state;
    if (MPI_Test(&hearing, &done, &state) != MPI_SUCCESS || done == 0) return;
    heard.text.back() = '\0';
    lost = fmt::format("rank {} has given up: {}", state.MPI_SOURCE, heard.text.data());
    cancel();
  }

  void require_alive() {
    if (!lost.empty()) throw Error(ErrorCode::lost_rank, "", lost);
  }

  void require_of(int other, int code) {
    if (code == MPI_SUCCESS) return;
    lost = fmt::format("rank {}: {}", other, reason_of(code));
    cancel();
    require_alive();
  }

  void tell(std::string_view reason) {
    told = std::make_unique<Farewell>();
    std::memcpy(told->text.data(), reason.data(), std::min(reason.size(), told->text.size() - 1));
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      telling.push_back(MPI_REQUEST_NULL);
      MPI_Isend(told.get(), sizeof *told, MPI_BYTE, other, farewell_tag, farewells, &telling.back());
    }
  }

  // A receive that is cancelled writes nothing. A send whose receive is cancelled is never asked for its bytes, and no
  // MPI cancels sends (MPI 4 says not to): it is left to itself.
  void cancel() {
    for (auto& [number, pending] : begun) {
      for (MPI_Request& part : pending.parts) {
        if (part == MPI_REQUEST_NULL) continue;
        if (pending.receives) {
          cancel_receive(part);
        } else {
          MPI_Request_free(&part);
        }
      }
    }
    begun.clear();
  }

  // Freeing is for all ranks together, of which one may be gone: after a loss the system does it, as the job ends.
  void free() {
    cancel();
    if (hearing != MPI_REQUEST_NULL) cancel_receive(hearing);
    int done = 1;
    MPI_Testall(static_cast<int>(telling.size()), telling.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) (void)told.release();  // it may still be read from
    if (!lost.empty()) return;
    MPI_Comm_free(&messages);
    MPI_Comm_free(&farewells);
  }

  MPI_Comm messages = MPI_COMM_NULL, farewells = MPI_COMM_NULL;
  int rank = 0, size = 1, level = MPI_THREAD_SINGLE;
  std::int64_t next = 0;
  std::map<std::int64_t, Pending> begun;
  Farewell heard;
  MPI_Request hearing = MPI_REQUEST_NULL;
  std::unique_ptr<Farewell> told;
  std::vector<MPI_Request> telling;
  std::string lost;  // why nothing can be sent any more
};

MpiRanks::MpiRanks(MPI_Comm comm) {
  check(comm);
  state_ = std::make_unique<State>(comm);
}

MpiRanks::~MpiRanks() {
  if (is_initialized()) state_->free();
}

int MpiRanks::rank() const {
  return state_->rank;
}

int MpiRanks::size() const {
  return state_->size;
}

std::int64_t MpiRanks::send(int to, int tag, const void* data, std::int64_t bytes) {
  return state_->begin(false, to, static_cast<const std::byte*>(data), bytes,
                       [&](const std::byte* from, int count, MPI_Request* request) {
                         return MPI_Isend(from, count, MPI_BYTE, to, tag, state_->messages, request);
                       });
}

std::int64_t MpiRanks::receive(int from, int tag, void* data, std::int64_t bytes) {
  return state_->begin(true, from, static_cast<std::byte*>(data), bytes,
                       [&](std::byte* to, int count, MPI_Request* request) {
                         return MPI_Irecv(to, count, MPI_BYTE, from, tag, state_->messages, request);
                       });
}

bool MpiRanks::test(std::int64_t request) {
  return state_->test(request);
}

void MpiRanks::abandon(std::string_view reason) noexcept {
  try {
    if (!state_->lost.empty()) return;
    state_->lost = fmt::format("this rank has given up: {}", reason);
    state_->tell(reason);
  } catch (const std::exception&) {  // no memory for the reason: the others wait until the job ends
    if (state_->lost.empty()) state_->lost = "given up";
  }
  state_->cancel();
}

bool MpiRanks::overlaps() const {
  return state_->level >= MPI_THREAD_FUNNELED;
}

std::string_view MpiRanks::thread_level() const {
  switch (state_->level) {
    case MPI_THREAD_SINGLE:
      return "single";
    case MPI_THREAD_FUNNELED:
      return "funneled";
    case MPI_THREAD_SERIALIZED:
      return "serialized";
    default:
      return "multiple";
  }
}

}  // namespace attend::inline v1
