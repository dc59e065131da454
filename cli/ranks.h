// `attend run` as several processes that mpirun starts: ranks. This command has no MPI in it, so that it runs where
// none is installed. Where mpirun starts it, it becomes attend-mpi, which is the same command with MPI (mpi/main.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attend/ring.h"
#include "cli/command.h"

namespace attend::cli {

// What mpirun says in the environment of what it starts: Open MPI's, MPICH's and their kin.
struct Started {
  int ranks = 1, rank = 0;
};
Started started_by_mpirun();

// All ranks, as one of them has them.
class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  virtual ~Ranks() = default;

  virtual RingTransport& transport() = 0;
  // How many of them are on this machine, this one among them.
  virtual int neighbours() const = 0;
  // What each rank says, by rank. All call it.
  virtual std::vector<std::string> gather(const std::string& own) = 0;
  // Ends the processes of all ranks, wherever they are.
  [[noreturn]] virtual void end(Status status) = 0;
};

// Of the program that has MPI; null in the one that has none.
using JoinRanks = std::unique_ptr<Ranks> (*)();
void set_join_ranks(JoinRanks join);

// Which rows each rank has: as --sharding says, which is zigzag with --causal where it is not given.
bool is_zigzag(const std::string& sharding, bool causal);
RingSharding make_sharding(bool zigzag, int ranks, std::int64_t queries, std::int64_t keys);

// Joins the other ranks: in this program, or in attend-mpi, which this process then becomes. Throws Failure where
// neither can be, and on all ranks but the first SaidElsewhere.
std::unique_ptr<Ranks> join_ranks(const Started& started);

// The first rank says what is wrong.
struct SaidElsewhere {
  Status status;
};

// Tells what is wrong with the line of this rank. The others learn it, who may have other lines: none waits for this
// one.
Status complain_of_line(const std::string& message, const App* app);

// The body, on every rank. What goes wrong on any of them is said once, and ends all.
void together(Ranks& ranks, const std::function<void()>& body);

// The line that this process was started with, for the one that it may become.
void remember_line(char** argv);

}  // namespace attend::cli
