// What module.cpp puts together.
#pragma once

#include <nanobind/nanobind.h>

namespace attend::python {

void bind_function(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_attention_backward(nanobind::module_& module);
void bind_scaled_dot_product_attention(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_kv_cache(nanobind::module_& module);
void bind_generator(nanobind::module_& module);
void bind_explain(nanobind::module_& module);
void bind_summary(nanobind::module_& module);
void bind_recording(nanobind::module_& module);
void bind_picture(nanobind::module_& module);
void bind_look(nanobind::module_& module);
void bind_pages(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_chat(nanobind::module_& module);
void bind_quantize(nanobind::module_& module);
void bind_ring(nanobind::module_& module);
void bind_threads(nanobind::module_& module);
void bind_token_vectors(nanobind::module_& module);
void bind_vectors(nanobind::module_& module);

}  // namespace attend::python
