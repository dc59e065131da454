#include "models/edits.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/from_end.h"

namespace attend::inline v1 {

namespace {

// In the places' order.
constexpr std::string_view names[] = {"embeddings",
                                      "residual",
                                      "q",
                                      "k",
                                      "v",
                                      "rotated_q",
                                      "rotated_k",
                                      "z",
                                      "attention",
                                      "residual_mid",
                                      "mlp_input",
                                      "mlp_hidden",
                                      "mlp",
                                      "cross_residual",
                                      "cross_q",
                                      "cross_k",
                                      "cross_v",
                                      "cross_z",
                                      "cross_attention",
                                      "encoder_embeddings",
                                      "encoder_residual",
                                      "encoder_q",
                                      "encoder_k",
                                      "encoder_v",
                                      "encoder_z",
                                      "encoder_attention",
                                      "encoder_residual_mid",
                                      "encoder_mlp_input",
                                      "encoder_mlp_hidden",
                                      "encoder_mlp"};

constexpr auto places = [] {
  std::array<ModelPlace, std::size(names)> all{};
  for (std::size_t n = 0; n < all.size(); ++n) all[n] = static_cast<ModelPlace>(n);
  return all;
}();

}  // namespace

std::string_view name_of(ModelPlace place) {
  if (static_cast<std::size_t>(place) < std::size(names)) return names[static_cast<std::size_t>(place)];
  fail(ErrorCode::bad_value, "name_of", "no model has a place {}", static_cast<int>(place));
}

std::span<const ModelPlace> model_places() {
  return places;
}

namespace models {

bool is_of_encoder(ModelPlace place) {
  return place >= ModelPlace::encoder_embeddings;
}

bool is_read_once(ModelPlace place) {
  return place == ModelPlace::cross_k || place == ModelPlace::cross_v;
}

namespace {

constexpr const char* edits_function = "Model";

// The same place of a stack that is alone.
ModelPlace own_place(ModelPlace place) {
  std::string_view name = name_of(place);
  for (const std::string_view of : {"encoder_", "cross_"})
    if (name.starts_with(of)) name.remove_prefix(of.size());
  return *std::ranges::find(places, name, [](ModelPlace each) { return name_of(each); });
}

}  // namespace

PlaceShape shape_of(const char* asked, ModelPlace place, const ModelInfo& info) {
  const bool encoder = is_of_encoder(place), cross = !encoder && place >= ModelPlace::cross_residual;
  const std::string_view name = name_of(place);
  if ((encoder || cross) && !info.encoder_decoder())
    fail(ErrorCode::bad_value, asked, "only encoder-decoders have {}; the model is of type {}", name, info.type);
  if (place == ModelPlace::residual_mid && info.parallel)
    fail(ErrorCode::bad_value, asked, "there is no {}: attention and MLP of this model read the same stream", name);
  const std::int64_t layers = encoder ? info.encoder_layers : info.layers;
  const std::int64_t heads = encoder ? info.encoder_heads : info.heads, kv = encoder || cross ? heads : info.kv_heads;
  const std::int64_t size = encoder ? info.encoder_head_size : info.head_size;
  switch (own_place(place)) {
    case ModelPlace::embeddings:
      return {.columns = info.input_size, .layers = 1};
    case ModelPlace::q:
    case ModelPlace::rotated_q:
    case ModelPlace::z:
      return {.columns = heads * size, .heads = heads, .layers = layers};
    case ModelPlace::k:
    case ModelPlace::v:
    case ModelPlace::rotated_k:
      return {.columns = kv * size, .heads = kv, .layers = layers};
    case ModelPlace::mlp_hidden:
      return {.columns = encoder ? info.encoder_mlp_size : info.mlp_size, .layers = layers};
    case ModelPlace::residual:
      return {.columns = info.embedding_size, .layers = cross ? layers : layers + 1};
    default:
      return {.columns = info.embedding_size, .layers = layers};
  }
}

namespace {

// The columns that an edit is of.
Range columns_of(const Edit& edit, const ModelInfo& info) {
  const PlaceShape shape = shape_of(edits_function, edit.at, info);
  if (edit.unit) return {*edit.unit, *edit.unit + 1};
  if (!edit.head) return {0, shape.columns};
  const std::int64_t size = shape.columns / shape.heads;
  return {*edit.head * size, (*edit.head + 1) * size};
}

// The layer, the head and the unit, counted from 0.
void find_place(Edit& edit, const ModelInfo& info) {
  const std::string_view at = name_of(edit.at);
  const PlaceShape shape = shape_of("Model: an edit", edit.at, info);
  edit.layer = from_end(edits_function, fmt::format("an edit at {} of layer", at), edit.layer, shape.layers);
  if (edit.head && shape.heads == 0)
    fail(ErrorCode::bad_value, edits_function, "an edit of head {} at {}: heads are apart at q, k, v and z alone",
         *edit.head, at);
  if (edit.head) edit.head = from_end(edits_function, "an edit of head", *edit.head, shape.heads);
  if (edit.unit && own_place(edit.at) != ModelPlace::mlp_hidden)
    fail(ErrorCode::bad_value, edits_function, "an edit of unit {} at {}: hidden units are at mlp_hidden", *edit.unit,
         at);
  if (edit.unit) edit.unit = from_end(edits_function, "an edit of unit", *edit.unit, shape.columns);
}

// The rows of a place, and where its sequences begin.
std::span<const std::int64_t> starts_of(ModelPlace place, const Batch& batch) {
  return is_read_once(place) && batch.memory ? batch.memory->starts : batch.starts;
}

void find_rows(Edit& edit, const Batch& batch) {
  if (!edit.rows) return;
  std::vector<std::int64_t>& rows = *edit.rows;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    rows[n] = from_end(edits_function, "an edit of row", rows[n], starts_of(edit.at, batch).back());
    if (n > 0 && rows[n] <= rows[n - 1])
      fail(ErrorCode::bad_value, edits_function, "the rows of an edit must rise, and {} follows {}", rows[n],
           rows[n - 1]);
  }
}

bool has_values(const Edit& edit) {
  return edit.values.raw() != nullptr;
}

bool takes_values(const Edit& edit) {
  return edit.set == Edit::Set::values || edit.set == Edit::Set::add ||
         (edit.set == Edit::Set::scale && has_values(edit));
}

std::string_view verb(Edit::Set set) {
  return set == Edit::Set::add ? "adds" : set == Edit::Set::scale ? "scales by" : "sets";
}

// What it is given for its rows, a row for each: [rows, columns].
View values_of(const Edit& edit, const Batch& batch, const ModelInfo& info) {
  const Range columns = columns_of(edit, info);
  const std::int64_t rows = edit.rows ? std::ssize(*edit.rows) : starts_of(edit.at, batch).back();
  const Dims given = edit.values.shape(), expected{rows, columns.end - columns.begin};
  bool fits = given.rank() <= 2;
  for (int back = 1; fits && back <= given.rank(); ++back) {
    const std::int64_t size = given[given.rank() - back];
    fits = size == 1 || size == expected[2 - back];
  }
  if (!fits)
    fail(ErrorCode::bad_shape, edits_function,
         "an edit of layer {} at {} {} values of shape {}, expected {}, or what "
         "broadcasts to it",
         edit.layer, name_of(edit.at), verb(edit.set), given, expected);
  return edit.values.broadcast_to(expected);
}

void check_values(const Edit& edit, const Batch& batch, const ModelInfo& info) {
  if (!std::isfinite(edit.by))
    fail(ErrorCode::bad_value, edits_function, "an edit of layer {} at {} {} values times {}", edit.layer,
         name_of(edit.at), verb(edit.set), edit.by);
  if (!takes_values(edit)) return;
  if (!is_floating(edit.values.dtype()))
    fail(ErrorCode::bad_dtype, edits_function, "an edit {} values that are {}, expected floating point", verb(edit.set),
         edit.values.dtype());
  values_of(edit, batch, info);
  const Tensor all = edit.values.to(DType::f32);
  const float* end = all.data<float>() + all.count();
  if (const float* bad = std::find_if_not(all.data<float>(), end, [](float x) { return std::isfinite(x); }); bad != end)
    fail(ErrorCode::bad_value, edits_function, "an edit of layer {} at {} {} values that have {}, expected finite ones",
         edit.layer, name_of(edit.at), verb(edit.set), *bad);
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

// The rows' own mean would change nothing where there is one.
void check_mean(const Edit& edit, const Batch& batch) {
  if (edit.set != Edit::Set::mean) return;
  for_each_sequence(edit, starts_of(edit.at, batch), [&](std::int64_t begin, std::int64_t end) {
    if (end - begin == 1)
      fail(ErrorCode::bad_value, edits_function,
           "an edit of layer {} at {} sets the mean over the rows, but a sequence has one row there, so nothing would "
           "change; give values, such as a mean over other texts",
           edit.layer, name_of(edit.at));
  });
}

// [1,columns]: over the rows [begin, end) of an edit, of `values` [N,columns].
Tensor mean_of(const Edit& edit, const View& values, std::int64_t begin, std::int64_t end) {
  std::vector<double> sums(static_cast<std::size_t>(values.size(1)));
  for (std::int64_t n = begin; n < end; ++n) {
    const std::int64_t row = edit.rows ? (*edit.rows)[static_cast<std::size_t>(n)] : n;
    const Tensor wide = values.slice(0, row, row + 1).to(DType::f32);
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<double>(wide.data<float>()[c]);
  }
  Tensor mean({1, values.size(1)});
  for (std::size_t c = 0; c < sums.size(); ++c)
    mean.data<float>()[c] = static_cast<float>(sums[c] / static_cast<double>(end - begin));
  return mean;
}

// x [1,columns], with a row of the edit's values added, or times it; what 0 is added to keeps its bits.
void change(const Edit& edit, const MutableView& x, const View& values) {
  Tensor to = x.to(DType::f32);
  const Tensor by = has_values(edit) ? values.to(DType::f32) : Tensor();
  float* out = to.data<float>();
  for (std::int64_t c = 0; c < to.count(); ++c) {
    const double value = edit.by * (by.count() > 0 ? static_cast<double>(by.data<float>()[c]) : 1.0);
    if (edit.set == Edit::Set::scale)
      out[c] = static_cast<float>(static_cast<double>(out[c]) * value);
    else if (value != 0)
      out[c] = static_cast<float>(static_cast<double>(out[c]) + value);
  }
  x.copy_from(to);
}

}  // namespace

Edits::Edits(std::span<const Edit> edits, const Batch& batch, const ModelInfo& info)
    : edits_(edits.begin(), edits.end()), batch_(batch), info_(info) {
  for (Edit& edit : edits_) {
    find_place(edit, info);
    if (is_of_encoder(edit.at) != (batch.stack == Stack::encoder)) continue;
    if (is_read_once(edit.at) && !batch.memory)
      fail(ErrorCode::bad_value, edits_function,
           "an edit at {} comes too late: the cache has the encoder's text already", name_of(edit.at));
    find_rows(edit, batch);
    check_values(edit, batch, info);
    check_mean(edit, batch);
  }
}

namespace {

// body(row of the place, row of the edit) for rows [begin, end) of an edit.
template <class Body>
void for_each_row(const Edit& edit, std::int64_t begin, std::int64_t end, Body body) {
  for (std::int64_t n = begin; n < end; ++n) body(edit.rows ? (*edit.rows)[static_cast<std::size_t>(n)] : n, n);
}

}  // namespace

void Edits::at(ModelPlace place, std::int64_t layer, const MutableView& values) {
  for (const Edit& edit : edits_) {
    if (edit.at != place || edit.layer != layer) continue;
    const Range columns = columns_of(edit, info_);
    const MutableView part = values.slice(1, columns.begin, columns.end);
    const View given = takes_values(edit) ? values_of(edit, batch_, info_) : View();
    const Tensor zeros({1, part.size(1)});
    for_each_sequence(edit, starts_of(edit.at, batch_), [&](std::int64_t begin, std::int64_t end) {
      const Tensor mean = edit.set == Edit::Set::mean && end > begin ? mean_of(edit, part, begin, end) : Tensor();
      for_each_row(edit, begin, end, [&](std::int64_t row, std::int64_t n) {
        const MutableView to = part.slice(0, row, row + 1);
        const View own = takes_values(edit) ? given.slice(0, n, n + 1) : View();
        if (edit.set == Edit::Set::add || edit.set == Edit::Set::scale)
          change(edit, to, own);
        else
          to.copy_from(edit.set == Edit::Set::values ? own : edit.set == Edit::Set::mean ? mean.view() : zeros.view());
      });
    });
  }
}

// What was set has no gradient before it; of a mean over rows it is the mean of theirs; what was scaled is scaled.
void Edits::back(ModelPlace place, std::int64_t layer, const MutableView& d) const {
  for (auto edit = edits_.rbegin(); edit != edits_.rend(); ++edit) {
    if (edit->at != place || edit->layer != layer || edit->set == Edit::Set::add) continue;
    const Range columns = columns_of(*edit, info_);
    const MutableView part = d.slice(1, columns.begin, columns.end);
    const View given = takes_values(*edit) ? values_of(*edit, batch_, info_) : View();
    const Tensor zeros({1, part.size(1)});
    for_each_sequence(*edit, starts_of(edit->at, batch_), [&](std::int64_t begin, std::int64_t end) {
      const Tensor mean = edit->set == Edit::Set::mean && end > begin ? mean_of(*edit, part, begin, end) : Tensor();
      for_each_row(*edit, begin, end, [&](std::int64_t row, std::int64_t n) {
        const MutableView to = part.slice(0, row, row + 1);
        if (edit->set == Edit::Set::scale)
          change(*edit, to, has_values(*edit) ? given.slice(0, n, n + 1) : View());
        else
          to.copy_from(edit->set == Edit::Set::mean ? mean.view() : zeros.view());
      });
    });
  }
}

}  // namespace models
}  // namespace attend::inline v1
