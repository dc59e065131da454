#include <algorithm>

#include "attend/io.h"
#include "io/element_bytes.h"
#include "io/mapped_file.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/read_tensors.h"
#include "io/safetensors.h"

namespace attend::inline v1 {

namespace {

// Of an axis, counted from either end.
int place_of(int axis, const Dims& shape, const char* function) {
  const int from_front = axis < 0 ? axis + shape.rank() : axis;
  if (from_front < 0 || from_front >= shape.rank())
    fail(ErrorCode::bad_shape, function, "axis {} of shape {}", axis, shape);
  return from_front;
}

// Row-major elements of a shape as `blocks` pieces that each hold one index or more of an axis: `step` elements for
// each.
struct Blocks {
  std::int64_t blocks = 1, step = 1;
};
Blocks blocks_of(const Dims& shape, int axis) {
  Blocks out;
  for (int i = 0; i < axis; ++i) out.blocks *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) out.step *= shape[i];
  return out;
}

}  // namespace

struct TensorFile::State {
  explicit State(const std::filesystem::path& path) : file("TensorFile", path, Pipes::read), mapped(file) {
    const Place& place = file.place();
    if (file.size() == 0) fail_at(place, "is empty");
    const std::string start = file.read(0, std::min<std::uint64_t>(file.size(), npy_magic.size()));
    if (start == npy_magic) {
      if (const std::optional<View> there = npy_in_place(file, mapped.data())) views.emplace("", *there);
    } else if (!start.starts_with("PK")) {
      take_safetensors();
    }
    if (!views.empty()) return;
    read = read_tensors(file);  // not by its name: a pipe is read once
    for (const auto& [name, tensor] : read) views.emplace(name, tensor);
  }

  // All, or none where one's numbers can't be read where they lie. What is no .safetensors file has none.
  void take_safetensors() {
    if (file.size() < 9 || file.read(8, 1) != "{") return;
    const SafetensorsFile open(file);
    for (const SafetensorsFile::Entry& entry : open.entries()) {
      if (entry.narrow || open.begin(entry) % static_cast<std::uint64_t>(size_of(entry.dtype)) != 0)
        return views.clear();
      views.emplace(entry.name, View(mapped.data() + open.begin(entry), entry.dtype, entry.shape));
    }
  }

  const View& at(std::string_view name) const {
    const auto found = views.find(name);
    if (found == views.end()) fail(ErrorCode::bad_value, file.place(), "holds no tensor {}", quote(name));
    return found->second;
  }

  // Of what is mapped; what is read has been checked.
  void require_booleans_of(const View& whole, int axis, Range part) const {
    if (whole.dtype() != DType::boolean || !read.empty()) return;
    const auto* data = static_cast<const std::byte*>(whole.raw());
    const auto check = [&](std::int64_t first, std::int64_t count) {
      require_booleans(data + first, count, file.place(), static_cast<std::uint64_t>(data + first - mapped.data()));
    };
    if (!whole.is_contiguous()) return check(0, whole.count());  // in Fortran order
    const Blocks all = blocks_of(whole.shape(), axis);
    for (std::int64_t b = 0; b < all.blocks; ++b)
      check((b * whole.shape()[axis] + part.begin) * all.step, (part.end - part.begin) * all.step);
  }

  InputFile file;
  MappedFile mapped;
  TensorMap read;
  std::map<std::string, View, std::less<>> views;
};

TensorFile::TensorFile(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
TensorFile::TensorFile(TensorFile&& other) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&& other) noexcept = default;
TensorFile::~TensorFile() = default;

std::vector<std::string> TensorFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, view] : state_->views) names.push_back(name);
  return names;
}

View TensorFile::view(std::string_view name) const {
  const View& whole = state_->at(name);
  if (whole.rank() > 0) return view(name, 0, {0, whole.size(0)});
  if (whole.dtype() == DType::boolean) require_booleans(whole.raw(), 1, state_->file.place(), 0);
  return whole;
}

View TensorFile::view(std::string_view name, int axis, Range part) const {
  const View& whole = state_->at(name);
  axis = place_of(axis, whole.shape(), "TensorFile::view");
  if (part.begin < 0 || part.begin > part.end || part.end > whole.size(axis))
    fail(ErrorCode::bad_shape, "TensorFile::view", "part {} to {} of axis {} of shape {}", part.begin, part.end, axis,
         whole.shape());
  state_->require_booleans_of(whole, axis, part);
  return whole.slice(axis, part.begin, part.end);
}

Dims TensorFile::shape(std::string_view name) const {
  return state_->at(name).shape();
}

DType TensorFile::dtype(std::string_view name) const {
  return state_->at(name).dtype();
}

struct SharedTensorFile::State {
  State(const std::filesystem::path& path, std::vector<Entry> given)
      : place{path.extension() == ".npy" ? "write_npy" : "write_safetensors", quote(path.native())},
        entries(std::move(given)) {
    NamedViews views;
    for (const Entry& entry : entries) views.emplace_back(entry.name, View(nullptr, entry.dtype, entry.shape));
    const std::string ending = path.extension().string();
    if (ending == ".npy" && views.size() == 1) {
      head = npy_header(views.front().second, place);
    } else if (ending == ".safetensors") {
      auto made = safetensors_head(place.function, views, {});
      head = std::move(made.bytes), views = std::move(made.tensors);
    } else {
      fail(ErrorCode::bad_value, place,
           "several processes write one tensor as .npy, and any number of them as .safetensors");
    }
    size = head.size();
    for (const auto& [name, view] : views) {
      begins.emplace(name, size);
      size += static_cast<std::uint64_t>(view.count() * size_of(view.dtype()));
    }
  }

  Place place;
  std::vector<Entry> entries;
  std::string head;
  std::map<std::string, std::uint64_t, std::less<>> begins;  // the byte at which a tensor does
  std::uint64_t size = 0;
  std::optional<OutputFile> file;  // of the first
  std::optional<OutputPart> part;
};

// "DEVICE:INODE:PATH"; 0:0 where another machine, which has other numbers, may be meant.
SharedTensorFile::SharedTensorFile(const std::filesystem::path& path, std::vector<Entry> entries, bool nearby)
    : state_(std::make_unique<State>(path, std::move(entries))) {
  State& state = *state_;
  state.file.emplace(state.place.function, path, nearby ? OutputFile::Name::late : OutputFile::Name::at_once);
  const std::string there = state.file->path_for_others();
  state.part.emplace(state.place, there);
  state.file->write(state.head);
  state.file->grow_to(state.size);
}

SharedTensorFile::SharedTensorFile(const std::filesystem::path& path, std::vector<Entry> entries,
                                   std::string_view place)
    : state_(std::make_unique<State>(path, std::move(entries))) {
  const std::size_t colon = place.find(':');
  const std::size_t second = colon == std::string_view::npos ? colon : place.find(':', colon + 1);
  if (second == std::string_view::npos)
    fail(ErrorCode::bad_value, state_->place, "place is {}, expected what place() says", quote(place));
  state_->part.emplace(state_->place, std::string(place.substr(second + 1)));
  const auto [device, inode] = state_->part->identity();
  if (!place.starts_with("0:0:") && place.substr(0, second) != fmt::format("{}:{}", device, inode))
    fail_at(state_->place, "the file that another process has begun can't be seen from here");
}

SharedTensorFile::SharedTensorFile(SharedTensorFile&& other) noexcept = default;
SharedTensorFile::~SharedTensorFile() = default;

std::string SharedTensorFile::place() const {
  const std::string there = state_->file ? state_->file->path_for_others() : "";
  const auto [device, inode] = state_->part->identity();
  return there.starts_with("/proc/") ? fmt::format("{}:{}:{}", device, inode, there) : "0:0:" + there;
}

void SharedTensorFile::write(std::string_view name, int axis, std::span<const Range> runs, const View& x) {
  constexpr const char* function = "SharedTensorFile::write";
  const State& state = *state_;
  const auto entry = std::ranges::find(state.entries, name, &Entry::name);
  if (entry == state.entries.end()) fail(ErrorCode::bad_value, function, "no tensor {}", quote(name));
  axis = place_of(axis, entry->shape, function);
  Dims expected = entry->shape;
  expected[axis] = 0;
  for (const Range& run : runs) {
    if (run.begin < 0 || run.begin > run.end || run.end > entry->shape[axis])
      fail(ErrorCode::bad_shape, function, "run {} to {} of axis {} of shape {}", run.begin, run.end, axis,
           entry->shape);
    expected[axis] += run.end - run.begin;
  }
  if (x.dtype() != entry->dtype || x.shape() != expected)
    fail(ErrorCode::bad_shape, function, "{} is {} {}, expected {} {}", quote(name), x.dtype(), x.shape(), entry->dtype,
         expected);
  const RowMajor elements(x);
  const Blocks all = blocks_of(entry->shape, axis);
  const std::int64_t step = all.step * size_of(entry->dtype);
  const auto* from = static_cast<const std::byte*>(elements.data());
  for (std::int64_t b = 0; b < all.blocks; ++b) {
    for (const Range& run : runs) {
      const std::int64_t count = (run.end - run.begin) * step;
      const std::int64_t at = (b * entry->shape[axis] + run.begin) * step;
      state_->part->write_at(state.begins.find(name)->second + static_cast<std::uint64_t>(at), from,
                             static_cast<std::uint64_t>(count));
      from += count;
    }
  }
}

void SharedTensorFile::finish() {
  state_->part->sync();
}

void SharedTensorFile::commit() {
  if (!state_->file) fail(ErrorCode::bad_value, state_->place, "only the process that created the file can commit it");
  state_->file->commit();
}

}  // namespace attend::inline v1
