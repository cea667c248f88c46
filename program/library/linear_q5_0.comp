#version 450
#extension GL_GOOGLE_include_directive : require

// y = w · x, or y += w · x, for a batch of x: w[rows][cols] in q5_0, row-major; cols is
// a multiple of 32. See linear.glsl.

#include "q5_0.glsl"
#include "linear_blocks.glsl"
