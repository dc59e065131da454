// The losses of a training as a picture.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace translate {

// An SVG: loss (nats per token) over steps. train holds one loss for each step, valid one after each validate_every.
// Equal arguments give equal bytes. Throws bad_value where train is empty.
std::string svg_loss_curve(std::span<const double> train, std::span<const double> valid, std::int64_t validate_every);

}  // namespace translate
