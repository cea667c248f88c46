#version 450
#extension GL_GOOGLE_include_directive : require

// Row tokens[t] of the table, in q4_1, becomes row t of y; rows have dim elements,
// a multiple of 32. A token that the table does not have is an access outside the
// table.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

#include "q4_1.glsl"
#include "embed_blocks.glsl"
