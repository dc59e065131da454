#include "models/edits.h"

#include <algorithm>

#include "core/from_end.h"

namespace attend::inline v0 {

std::string_view name_of(ModelPlace place) {
  switch (place) {
    case ModelPlace::residual:
      return "residual";
    case ModelPlace::z:
      return "z";
    case ModelPlace::attention:
      return "attention";
    case ModelPlace::mlp:
      return "mlp";
    case ModelPlace::cross_z:
      return "cross_z";
    case ModelPlace::cross_attention:
      return "cross_attention";
    case ModelPlace::encoder_residual:
      return "encoder_residual";
    case ModelPlace::encoder_z:
      return "encoder_z";
    case ModelPlace::encoder_attention:
      return "encoder_attention";
    case ModelPlace::encoder_mlp:
      return "encoder_mlp";
  }
  fail(ErrorCode::bad_value, "name_of", "there is no place {} in a model", static_cast<int>(place));
}

namespace models {

bool is_of_encoder(ModelPlace place) {
  return place >= ModelPlace::encoder_residual;
}

namespace {

constexpr const char* function = "Model";

bool has_heads(ModelPlace place) {
  return place == ModelPlace::z || place == ModelPlace::cross_z || place == ModelPlace::encoder_z;
}

struct Heads {
  std::int64_t count, size;
};

Heads heads_of(ModelPlace place, const ModelInfo& info) {
  return is_of_encoder(place) ? Heads{info.encoder_heads, info.encoder_head_size} : Heads{info.heads, info.head_size};
}

// The columns that an edit is of.
Range columns_of(const Edit& edit, const ModelInfo& info) {
  if (!has_heads(edit.at)) return {0, info.embedding_size};
  const Heads heads = heads_of(edit.at, info);
  if (edit.head) return {*edit.head * heads.size, (*edit.head + 1) * heads.size};
  return {0, heads.count * heads.size};
}

// The layer and the head, counted from 0.
void find_place(Edit& edit, const ModelInfo& info) {
  if (edit.at > ModelPlace::mlp && !info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "an edit at {}, which encoder-decoders have; the model is of type {}",
         name_of(edit.at), info.type);
  const bool between = edit.at == ModelPlace::residual || edit.at == ModelPlace::encoder_residual;
  const std::int64_t layers = is_of_encoder(edit.at) ? info.encoder_layers : info.layers;
  edit.layer = from_end(function, fmt::format("an edit at {} of layer", name_of(edit.at)), edit.layer,
                        between ? layers + 1 : layers);
  if (!edit.head) return;
  if (!has_heads(edit.at))
    fail(ErrorCode::bad_value, function, "an edit of head {} at {}: heads are apart at z alone", *edit.head,
         name_of(edit.at));
  edit.head = from_end(function, "an edit of head", *edit.head, heads_of(edit.at, info).count);
}

void find_rows(Edit& edit, const Batch& batch) {
  if (!edit.rows) return;
  std::vector<std::int64_t>& rows = *edit.rows;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    rows[n] = from_end(function, "an edit of row", rows[n], std::ssize(batch.ids));
    if (n > 0 && rows[n] <= rows[n - 1])
      fail(ErrorCode::bad_value, function, "the rows of an edit must rise, and {} follows {}", rows[n], rows[n - 1]);
  }
}

void check_values(const Edit& edit, const Batch& batch, const ModelInfo& info) {
  if (edit.set != Edit::Set::values) return;
  const Range columns = columns_of(edit, info);
  const Dims expected{edit.rows ? std::ssize(*edit.rows) : std::ssize(batch.ids), columns.end - columns.begin};
  if (edit.values.shape() != expected)
    fail(ErrorCode::bad_shape, function, "an edit of layer {} at {} sets values of shape {}, expected {}", edit.layer,
         name_of(edit.at), edit.values.shape(), expected);
  if (!is_floating(edit.values.dtype()))
    fail(ErrorCode::bad_dtype, function, "an edit sets values that are {}, expected floating point",
         edit.values.dtype());
}

// Calls body(begin, end) for the stretches of an edit's rows that are each of one sequence, counted in the edit.
template <class Body>
void for_each_sequence(const Edit& edit, std::span<const std::int64_t> starts, Body body) {
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    if (!edit.rows) {
      body(starts[s], starts[s + 1]);
      continue;
    }
    const auto place = [&](std::int64_t row) { return std::ranges::lower_bound(*edit.rows, row) - edit.rows->begin(); };
    body(place(starts[s]), place(starts[s + 1]));
  }
}

void check_mean(const Edit& edit, const Batch& batch) {
  if (edit.set != Edit::Set::mean) return;
  std::size_t s = 0;
  for_each_sequence(edit, batch.starts, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = batch.starts[s], count = batch.starts[s + 1] - first;
    if (end > begin && count == 1 && batch.positions[static_cast<std::size_t>(first)] > 0)
      fail(ErrorCode::bad_value, function, "an edit sets the mean over the rows, and a step over a cache has one row");
    ++s;
  });
}

// What an edit writes to the rows [begin, end) of it, of `values` [N,columns].
class NewRows {
 public:
  NewRows(const Edit& edit, const View& values, std::int64_t begin, std::int64_t end)
      : edit_(edit), same_({1, values.size(1)}) {
    if (edit.set != Edit::Set::mean || begin == end) return;
    std::vector<double> sums(static_cast<std::size_t>(values.size(1)));
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t row = row_of(n);
      const Tensor wide = values.slice(0, row, row + 1).to(DType::f32);
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<double>(wide.data<float>()[c]);
    }
    for (std::size_t c = 0; c < sums.size(); ++c)
      same_.data<float>()[c] = static_cast<float>(sums[c] / static_cast<double>(end - begin));
  }

  std::int64_t row_of(std::int64_t n) const { return edit_.rows ? (*edit_.rows)[static_cast<std::size_t>(n)] : n; }
  View operator[](std::int64_t n) const {
    return edit_.set == Edit::Set::values ? edit_.values.slice(0, n, n + 1) : same_.view();
  }

 private:
  const Edit& edit_;
  Tensor same_;  // zeros, or the mean
};

}  // namespace

Edits::Edits(std::span<const Edit> edits, const Batch& batch, const ModelInfo& info)
    : edits_(edits.begin(), edits.end()), batch_(batch), info_(info) {
  for (Edit& edit : edits_) {
    find_place(edit, info);
    if (is_of_encoder(edit.at) != (batch.stack == Stack::encoder)) continue;
    find_rows(edit, batch);
    check_values(edit, batch, info);
    check_mean(edit, batch);
  }
}

void Edits::at(ModelPlace place, std::int64_t layer, const MutableView& values) {
  for (const Edit& edit : edits_) {
    if (edit.at != place || edit.layer != layer) continue;
    const Range columns = columns_of(edit, info_);
    const MutableView part = values.slice(1, columns.begin, columns.end);
    for_each_sequence(edit, batch_.starts, [&](std::int64_t begin, std::int64_t end) {
      const NewRows rows(edit, part, begin, end);
      for (std::int64_t n = begin; n < end; ++n) part.slice(0, rows.row_of(n), rows.row_of(n) + 1).copy_from(rows[n]);
    });
  }
}

}  // namespace models
}  // namespace attend::inline v0
