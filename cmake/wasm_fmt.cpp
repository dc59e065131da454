// fmt's own functions, once for the page's modules: of headers alone each source that has a message would compile them.
// Built by wasm_packages.cmake, since Debian's package has the library for this machine, and no source of it.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// NOLINTBEGIN(readability-redundant-declaration)
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
// NOLINTEND(readability-redundant-declaration)

}  // namespace detail
FMT_END_NAMESPACE
