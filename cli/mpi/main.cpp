// attend-mpi: the command, with MPI.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "attend/mpi.h"
#include "cli/ranks.h"

namespace attend::cli {
namespace {

class MpiJob final : public Ranks {
 public:
  MpiJob() {
    int level = MPI_THREAD_SINGLE, size = 1;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (const int started = started_by_mpirun().ranks; size != started) {
      MPI_Finalize();
      throw Failure(
          fmt::format("run: mpirun started {} processes, but each sees {}: this mpirun belongs to another MPI than {}, "
                      "with which attend-mpi was built",
                      started, size, library()));
    }
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &neighbours_);
    MPI_Comm_free(&machine);
    transport_.emplace(MPI_COMM_WORLD);
  }
  ~MpiJob() override {
    // Something is thrown past those who are still waiting for this rank.
    if (std::uncaught_exceptions() > 0) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(Status::failed));
    transport_.reset();
    MPI_Finalize();
  }

  RingTransport& transport() override { return *transport_; }
  int neighbours() const override { return neighbours_; }

  std::vector<std::string> gather(const std::string& own) override {
    const auto size = static_cast<std::size_t>(transport_->size());
    const int length = static_cast<int>(own.size());
    std::vector<int> lengths(size), begins(size);
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
    int sum = 0;
    for (std::size_t n = 0; n < size; ++n) begins[n] = sum, sum += lengths[n];
    std::string all(static_cast<std::size_t>(sum), '\0');
    MPI_Allgatherv(own.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR, MPI_COMM_WORLD);
    std::vector<std::string> parts;
    for (std::size_t n = 0; n < size; ++n)
      parts.push_back(all.substr(static_cast<std::size_t>(begins[n]), static_cast<std::size_t>(lengths[n])));
    return parts;
  }

  void end(Status status) override {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(status));
    _exit(static_cast<int>(status));
  }

 private:
  // The first line of what it says of itself, without what follows the version.
  static std::string library() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version(text.data(), static_cast<std::size_t>(length));
    for (char& c : version)
      if (c == '\t') c = ' ';
    return version.substr(0, version.find_first_of(",\n"));
  }

  int neighbours_ = 1;
  std::optional<MpiRanks> transport_;
};

}  // namespace
}  // namespace attend::cli

int main(int argc, char** argv) {
  using namespace attend::cli;
  set_join_ranks([]() -> std::unique_ptr<Ranks> { return std::make_unique<MpiJob>(); });
  return start(argc, argv);
}
