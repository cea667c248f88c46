#version 450
// partial[g] = the sum of the elements that workgroup g adds up.
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Partial { uint partial[]; };

shared uint sums[256];

void main() {
	uint lane = gl_LocalInvocationIndex, sum = 0;
	for (uint i = gl_GlobalInvocationID.x; i < x.length(); i += gl_NumWorkGroups.x * 256)
		sum += x[i];
	sums[lane] = sum;
	barrier();
	for (uint half_ = 128; half_ > 0; half_ /= 2) {
		if (lane < half_)
			sums[lane] += sums[lane + half_];
		barrier();
	}
	if (lane == 0)
		partial[gl_WorkGroupID.x] = sums[0];
}
