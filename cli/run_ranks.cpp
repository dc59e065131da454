#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <list>
#include <thread>

#include "attend/error.h"
#include "attend/io.h"
#include "attend/threads.h"
#include "cli/run.h"
#include "cli/tensor_file.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

// What a view points to: a mapped file, or a copy.
struct Loaded {
  std::optional<TensorFile> file;
  Tensor copy;
  View view;
};

struct RanksSource {
  TensorFile file;
  std::string name;

  explicit RanksSource(const std::string& argument) : RanksSource(parse_tensor_path(argument)) {}
  Dims shape() const { return file.shape(name); }
  DType dtype() const { return file.dtype(name); }

 private:
  explicit RanksSource(const TensorPath& path) : file(path.file), name(choose_tensor(path, file.names())) {}
};

// The size of an axis, -2 say.
std::int64_t size_of_axis(const char* argument, const Dims& shape, int axis) {
  if (shape.rank() + axis < 0)
    throw Error(ErrorCode::bad_shape, "attention",
                fmt::format("{} has shape {}, expected [B,H,T,D]", argument, shape.str()));
  return shape[shape.rank() + axis];
}

// One run is looked at where it lies; several become one.
Loaded take(RanksSource source, int axis, const std::vector<Range>& runs) {
  std::vector<Range> parts;
  for (const Range& run : runs)
    if (run.begin < run.end) parts.push_back(run);
  if (parts.empty()) parts.emplace_back();
  Loaded loaded;
  if (parts.size() == 1) {
    loaded.view = source.file.view(source.name, axis, parts.front());
    loaded.file.emplace(std::move(source.file));
    return loaded;
  }
  Dims shape = source.shape();
  std::int64_t& length = shape[shape.rank() + axis];
  length = 0;
  for (const Range& part : parts) length += part.end - part.begin;
  loaded.copy = Tensor::uninitialized(shape, source.dtype());
  std::int64_t at = 0;
  for (const Range& part : parts) {
    const std::int64_t count = part.end - part.begin;
    loaded.copy.view().slice(axis, at, at + count).copy_from(source.file.view(source.name, axis, part));
    at += count;
  }
  loaded.view = loaded.copy.view();
  return loaded;
}

Loaded take_all(RanksSource source) {
  Loaded loaded;
  loaded.view = source.file.view(source.name);
  loaded.file.emplace(std::move(source.file));
  return loaded;
}

void check_for_ranks(const RunArguments& arguments) {
  check_line(arguments);
  const auto alone = [](const char* what) {
    return UsageError(fmt::format("{}: needs a single process: leave mpirun out, or say --no-mpi", what));
  };
  if (arguments.inside.summary) throw alone("--summary");
  if (!arguments.inside.weights.empty()) throw alone("--weights");
  for (const auto& [option, file] : {std::pair("-o", &arguments.out), {"--lse", &arguments.lse}})
    if (file->ends_with(".npz"))
      throw UsageError(
          fmt::format("{}: one process writes .npz; where mpirun starts several, use .npy or .safetensors", option));
}

// One machine's processors are for all ranks there. Where mpirun has given each its own (Open MPI does, MPICH does
// where it is asked to), the system says so.
void share_processors(int neighbours) {
  const int all = static_cast<int>(std::min(sysconf(_SC_NPROCESSORS_ONLN), 1L << 20));
  if (num_threads() >= all) set_num_threads(std::max(1, num_threads() / neighbours));
}

// Passes on to another one, and tells how much of what this rank sends and receives has been: on a terminal as other
// commands do. mpirun mostly has a pipe there, and a job's file behind it: a line after 10 s, 20 s, 40 s and so on.
class TellingTransport final : public RingTransport {
 public:
  TellingTransport(RingTransport& ranks, const RingRankPlan& plan)
      : ranks_(ranks), all_(static_cast<double>(plan.sent_bytes + plan.received_bytes)) {
    if (ranks_.rank() == 0) on_terminal_ = progress_.stage();
  }

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override {
    return begun(ranks_.send(to, tag, data, bytes), bytes);
  }
  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override {
    return begun(ranks_.receive(from, tag, data, bytes), bytes);
  }
  bool test(std::int64_t request) override {
    const bool is_done = ranks_.test(request);
    if (is_done) {
      const auto found = under_way_.find(request);
      done_ += static_cast<double>(found->second);
      under_way_.erase(found);
    }
    if (rank() == 0 && done_ < all_) tell_share(done_ / all_);
    return is_done;
  }
  void abandon(std::string_view reason) noexcept override { ranks_.abandon(reason); }
  bool overlaps() const override { return ranks_.overlaps(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t begun(std::int64_t request, std::int64_t bytes) {
    under_way_.emplace(request, bytes);
    return request;
  }

  void tell_share(double share) {
    if (on_terminal_) return on_terminal_(share);
    const Clock::duration passed = Clock::now() - start_;
    if (passed < next_) return;
    while (next_ <= passed) next_ *= 2;
    tell(fmt::format("attend: after {} s rank 0 has sent and received {:.0f} % of its messages' bytes",
                     std::chrono::duration_cast<std::chrono::seconds>(passed).count(), 100 * share));
  }

  RingTransport& ranks_;
  std::map<std::int64_t, std::int64_t> under_way_;  // bytes, by request
  double done_ = 0, all_ = 0;
  Progress progress_;
  std::function<void(double)> on_terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::duration next_ = std::chrono::seconds(10);
};

// What the result's file or files hold.
struct Outputs {
  struct File {
    std::string path;
    std::vector<SharedTensorFile::Entry> entries;
    std::optional<SharedTensorFile> open = {};
  };
  std::vector<File> files;

  Outputs(const RunArguments& arguments, const Dims& q, std::int64_t v_head_size, DType dtype) {
    Dims shape = q, rows;
    shape[shape.rank() - 1] = v_head_size;
    for (int i = 0; i + 1 < q.rank(); ++i) rows.push_back(q[i]);
    files.push_back({arguments.out, {{"out", dtype, shape}}});
    if (arguments.lse.empty()) return;
    if (!same_file(arguments.lse, arguments.out)) files.push_back({arguments.lse, {}});
    files.back().entries.push_back({"lse", DType::f32, rows});
  }

  // Rank 0 begins each, the others open them. First without a name, where all are on this machine; where one of them
  // does not see that (it is in a container of its own, say), with one.
  void begin(Ranks& ranks) {
    const bool first = ranks.transport().rank() == 0;
    for (File& file : files) {
      for (const bool nearby : {true, false}) {
        if (nearby && ranks.neighbours() < ranks.transport().size()) continue;
        together(ranks, [&] {
          writing([&] {
            if (first) file.open.emplace(std::filesystem::path(file.path), file.entries, nearby);
          });
        });
        const std::string place = ranks.gather(first ? file.open->place() : "").front();
        std::string wrong;
        try {
          if (!first) file.open.emplace(std::filesystem::path(file.path), file.entries, std::string_view(place));
        } catch (const Error& error) {
          wrong = error.what();
        }
        const std::vector<std::string> all = ranks.gather(wrong);
        if (std::ranges::all_of(all, [](const std::string& each) { return each.empty(); })) break;
        if (!nearby)
          together(ranks, [&] {
            if (!wrong.empty()) throw Failure(wrong);
          });
        file.open.reset();
      }
    }
  }

  void write(std::string_view name, int axis, std::span<const Range> runs, const View& x) {
    for (File& file : files)
      if (std::ranges::find(file.entries, name, &SharedTensorFile::Entry::name) != file.entries.end())
        file.open->write(name, axis, runs, x);
  }
};

// This rank's part of the call.
struct Part {
  Dims q, k, v;  // of the whole
  DType dtype = DType::f32;
  RingSharding sharding;
  std::list<Loaded> loaded;  // what the views point to
  View queries, keys, values;
  AttentionOptions options;

  Part(const RunArguments& arguments, int rank, int size) {
    options = parse_options(arguments);
    RanksSource from_q(arguments.q), from_k(arguments.k), from_v(arguments.v);
    q = from_q.shape(), k = from_k.shape(), v = from_v.shape(), dtype = from_q.dtype();
    const std::int64_t Tq = size_of_axis("q", q, -2), Tk = size_of_axis("k", k, -2);
    check_shapes();
    sharding = make_sharding(is_zigzag(arguments.sharding, arguments.visibility.causal), size, Tq, Tk);
    const auto own = static_cast<std::size_t>(rank);
    for (const TensorOption& option : tensor_options()) {
      const std::string& file = arguments.tensors.at(option.name);
      if (file.empty()) continue;
      RanksSource source(file);
      const Dims shape = source.shape();
      const bool has_rows =
          option.shape == TensorOption::Shape::pairs && shape.rank() > 1 && Tq > 1 && shape[shape.rank() - 2] == Tq;
      loaded.push_back(has_rows ? take(std::move(source), -2, sharding.queries[own]) : take_all(std::move(source)));
      options.*option.value = loaded.back().view;
    }
    check_offset(options);
    queries = loaded.emplace_back(take(std::move(from_q), -2, sharding.queries[own])).view;
    keys = loaded.emplace_back(take(std::move(from_k), -2, sharding.keys[own])).view;
    values = loaded.emplace_back(take(std::move(from_v), -2, sharding.keys[own])).view;
  }

 private:
  // In the words, and with the shapes, that one process would have.
  void check_shapes() const {
    try {
      plan(q, k, v, dtype, options);
    } catch (const Error& error) {
      throw Error(error.code(), "attention", error.detail());
    }
  }
};

}  // namespace

void run_on_ranks(const RunArguments& arguments, Ranks& ranks) {
  const int rank = ranks.transport().rank(), size = ranks.transport().size();
  share_processors(ranks.neighbours());
  std::optional<Part> part;
  std::optional<Outputs> outputs;
  together(ranks, [&] {
    check_for_ranks(arguments);
    part.emplace(arguments, rank, size);
    outputs.emplace(arguments, part->q, part->v[part->v.rank() - 1], part->dtype);
  });
  outputs->begin(ranks);
  AttentionResult result;
  together(ranks, [&] {
    const RingPlan plan = plan_ring(part->q, part->k, part->v, part->dtype, part->sharding, parse_options(arguments));
    TellingTransport telling(ranks.transport(), plan.ranks[static_cast<std::size_t>(rank)]);
    result = ring_attention(telling, part->queries, part->keys, part->values, part->sharding, part->options);
  });
  const std::vector<Range>& runs = part->sharding.queries[static_cast<std::size_t>(rank)];
  together(ranks, [&] {
    writing([&] {
      outputs->write("out", -2, runs, result.out);
      outputs->write("lse", -1, runs, result.lse);
      for (Outputs::File& file : outputs->files) file.open->finish();
    });
  });
  for (Outputs::File& file : outputs->files) {
    together(ranks, [&] {
      if (rank == 0) writing([&] { file.open->commit(); });
    });
    if (rank == 0) tell("attend: wrote " + file.path);
  }
}

}  // namespace attend::cli
