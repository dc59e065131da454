// All layers: linear.h, norm.h, activation.h, rotary.h and attention_layers.h.
#pragma once

#include "attend/activation.h"
#include "attend/attention_layers.h"
#include "attend/linear.h"
#include "attend/norm.h"
#include "attend/rotary.h"
