// The version that a program is compiled with.
#pragma once

#define ATTEND_VERSION_MAJOR 1
#define ATTEND_VERSION_MINOR 0
#define ATTEND_VERSION_PATCH 0
// One number, to compare: 1.2.3 is 10203.
#define ATTEND_VERSION (ATTEND_VERSION_MAJOR * 10000 + ATTEND_VERSION_MINOR * 100 + ATTEND_VERSION_PATCH)
#define ATTEND_VERSION_STRING "1.0.0-rc1"
