// Which share of a launch's work the workgroup and the lane have. Every kernel
// loops over its work in strides, so that every grid covers everything.

// More workgroups than this have nothing to do: their numbers, times the most
// lanes of a workgroup, stay within 30 bits, and so do the elements of the
// largest buffer. The sum of the two never wraps.
const uint MOST_GROUPS = 1u << 20;

// The number of this workgroup, and how many there are, over x, y and z. The
// number of a workgroup that has nothing to do is the largest there is.
void numberGroups(out uint group, out uint groups) {
    uvec3 size = gl_NumWorkGroups;
    uvec3 at = gl_WorkGroupID;
    uint nx = min(size.x, MOST_GROUPS);
    uint ny = min(size.y, MOST_GROUPS / nx);
    uint nz = min(size.z, MOST_GROUPS / (nx * ny));
    groups = nx * ny * nz;
    bool works = at.x < nx && at.y < ny && at.z < nz;
    group = works ? (at.z * ny + at.y) * nx + at.x : 0xFFFFFFFFu;
}

// The first element of this lane, and how far it is to the next, for work of one
// element per lane.
void numberLanes(out uint first, out uint stride) {
    uint group;
    uint groups;
    numberGroups(group, groups);
    uint lanes = gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z;
    first = group * lanes + gl_LocalInvocationIndex;
    stride = groups * lanes;
}

// Whether a*b elements are at most length, however large a and b.
bool fits(uint a, uint b, uint length) {
    return a == 0u || b <= length / max(a, 1u);
}

// An index that no buffer has. A kernel whose sizes do not fit its buffers uses it
// to say so: the device traps, and names the binding.
uint outside() {
    return 0xFFFFFFFFu;
}
