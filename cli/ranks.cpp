#include "cli/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "attend/error.h"

namespace attend::cli {
namespace {

JoinRanks join = nullptr;
char** line = nullptr;

int number_of(std::string_view text, int otherwise) {
  int number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Beside this program, as a build has it, or where it is installed: without MPI it is of no use on its own.
std::vector<std::filesystem::path> places_of_mpi_program() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error),
                              folder = self.parent_path();
  return {folder / "attend-mpi", folder / ".." / "libexec" / "attend" / "attend-mpi"};
}

// Returns where there is none.
void become_mpi_program() {
  for (const std::filesystem::path& place : places_of_mpi_program()) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) continue;
    execv(place.c_str(), line);
    throw Failure(fmt::format("run: {} can't be started: {}", place.string(), std::strerror(errno)));
  }
}

// How a rank did: nothing where all is well, else its exit status, whether it fails for another's sake, and the
// message.
std::string outcome_of(const std::function<void()>& body) {
  const auto failed = [](Status status, const std::string& message, bool for_another = false) {
    return fmt::format("{}{}{}", static_cast<int>(status), for_another ? 'b' : 'a', message);
  };
  try {
    body();
    return "";
  } catch (const UsageError& error) {
    return failed(Status::usage, error.what());
  } catch (const Error& error) {
    return failed(error.code() == ErrorCode::bad_file ? Status::bad_file : Status::failed, error.what(),
                  error.code() == ErrorCode::lost_rank);
  } catch (const std::bad_alloc&) {
    return failed(Status::failed, "out of memory");
  } catch (const std::exception& error) {
    return failed(Status::failed, error.what());
  }
}

}  // namespace

Started started_by_mpirun() {
  for (const auto& [size, rank] : {std::pair("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), {"PMI_SIZE", "PMI_RANK"}})
    if (!environment(size).empty()) return {number_of(environment(size), 1), number_of(environment(rank), 0)};
  return {};
}

bool is_zigzag(const std::string& sharding, bool causal) {
  return sharding.empty() ? causal : sharding == "zigzag";
}

RingSharding make_sharding(bool zigzag, int ranks, std::int64_t queries, std::int64_t keys) {
  return zigzag ? RingSharding::zigzag(ranks, queries, keys) : RingSharding::contiguous(ranks, queries, keys);
}

void set_join_ranks(JoinRanks function) {
  join = function;
}

void remember_line(char** argv) {
  line = argv;
}

std::unique_ptr<Ranks> join_ranks(const Started& started) {
  try {
    if (join != nullptr) return join();
    become_mpi_program();
    throw Failure(
        fmt::format("run: mpirun started {} processes, but this attend was built without MPI: build it with `make "
                    "mpi`, install attend-mpi, or say --no-mpi, so that each process computes everything",
                    started.ranks));
  } catch (const Failure&) {
    if (started.rank == 0) throw;
    // Not before the first one has spoken: where one fails, mpirun ends all.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    throw SaidElsewhere{Status::failed};
  }
}

Status complain_of_line(const std::string& message, const App* app) {
  const Started started = started_by_mpirun();
  bool alone = started.ranks == 1 || app->name() != "run";
  for (char** word = line; !alone && word != nullptr && *word != nullptr; ++word)
    alone = std::string_view(*word) == "--no-mpi";
  if (alone) return complain(Status::usage, message, app);
  std::unique_ptr<Ranks> ranks;
  try {
    ranks = join_ranks(started);
  } catch (const Failure&) {  // nobody waits for anyone
    return complain(Status::usage, message, app);
  } catch (const SaidElsewhere&) {
    return Status::usage;
  }
  together(*ranks, [&] { throw UsageError(message); });
  return Status::usage;
}

void together(Ranks& ranks, const std::function<void()>& body) {
  const std::vector<std::string> outcomes = ranks.gather(outcome_of(body));
  // The first one that fails for a reason of its own.
  const auto failed = std::ranges::min_element(outcomes, {}, [](const std::string& outcome) {
    return outcome.empty() ? 2 : outcome[1] == 'b' ? 1 : 0;
  });
  if (failed->empty()) return;
  const auto rank = failed - outcomes.begin();
  const auto status = static_cast<Status>(failed->front() - '0');
  if (rank == ranks.transport().rank()) {
    // What all say, and what names a rank, needs no name before it.
    const bool named = failed->find("rank ") != std::string::npos ||
                       std::ranges::all_of(outcomes, [&](const std::string& other) { return other == *failed; });
    tell(fmt::format("attend: {}{}", named ? "" : fmt::format("rank {}: ", rank), failed->substr(2)));
    if (status == Status::usage) tell("try: attend run --help");
  }
  ranks.gather("");  // it is said
  ranks.end(status);
}

}  // namespace attend::cli
