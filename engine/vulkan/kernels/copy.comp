#version 450
#extension GL_EXT_shader_8bit_storage : require

// Copies n bytes, from any byte to any byte: whole words of what is written, and single
// bytes before and behind them. Does nothing behind an entry that ended early.

layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) buffer To { uint to[]; };
layout(set = 0, binding = 0, std430) buffer ToBytes { uint8_t toByte[]; };
layout(set = 0, binding = 1, std430) readonly buffer From { uint from[]; };
layout(set = 0, binding = 2, std430) readonly buffer T { uint first; };
layout(push_constant) uniform P { uint toOff; uint fromOff; uint n; uint entry; };

uint byteAt(uint off) {
    return from[off >> 2] >> (8u * (off & 3u));
}

void main() {
    if (first < entry) {
        return;
    }

    uint lane = gl_GlobalInvocationID.x;
    uint lanes = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    uint head = min((4u - (toOff & 3u)) & 3u, n);
    uint words = (n - head) >> 2;
    uint tail = head + 4u * words;

    uint toWord = (toOff + head) >> 2;
    uint fromWord = (fromOff + head) >> 2;
    uint shift = 8u * ((fromOff + head) & 3u);
    if (shift == 0u) {
        for (uint i = lane; i < words; i += lanes) {
            to[toWord + i] = from[fromWord + i];
        }
    } else {
        for (uint i = lane; i < words; i += lanes) {
            to[toWord + i] = (from[fromWord + i] >> shift) | (from[fromWord + i + 1u] << (32u - shift));
        }
    }

    if (lane < head) {
        toByte[toOff + lane] = uint8_t(byteAt(fromOff + lane));
    }
    if (lane < n - tail) {
        toByte[toOff + tail + lane] = uint8_t(byteAt(fromOff + tail + lane));
    }
}
