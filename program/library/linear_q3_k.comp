#version 450
#extension GL_GOOGLE_include_directive : require

// y = w · x, or y += w · x, for a batch of x: w[rows][cols] in q3_k, row-major; cols is
// a multiple of 256. See linear.glsl.

#include "q3_k.glsl"
#include "linear_blocks.glsl"
