#version 450
// Rotary embedding. A lane turns one pair of channels, or copies one channel that does not turn, so it may run in place.
// n: lanes of a row, heads, tokens, batches. b: positions. p[0]: pairs, p[1]: first channel that turns, p[2..3]: address of a table.
// It has for each pair the turns per position, in 2^-64 of a turn, so that position times that wraps around by itself, exactly; and
// where in the positions its own begin. p[4]: gain of the sine, with its sign, p[5]: of the cosine.
// FN bit 0: a pair is `pairs` apart, else two neighbours. Bit 1: turns are divided by factors, at nb[0..1], nb[2] apart.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Table { uint64_t turns, first; };

// turns / f, f being m times a power of two: a long division that keeps 64 bits.
uint64_t divided(uint64_t turns, uint f) {
    int e = int(f >> 23 & 255u) - 127;
    uint64_t m = uint64_t((f & 0x7fffffu) | 0x800000u), whole = turns / m, rest = turns - whole * m;
    uint64_t q = (whole << 23) + (rest << 23) / m;
    q = e >= 64 || e <= -64 ? uint64_t(0) : e >= 0 ? q >> e : q << -e;
    return f >> 31 != 0 ? uint64_t(0) - q : q;
}

void main() {
    uint i = group() * 256 + gl_LocalInvocationID.x;
    if (i >= count()) return;
    uvec4 at = walk(i);
    uint pairs = push.p[0], first = push.p[1], lane = at.x;
    at.x = 0;
    int64_t from = in_a(at), to = in_y(at);
    if (lane >= pairs) {
        uint c = lane - pairs;
        if (c >= first) c += 2 * pairs;
        uint64_t x = push.a, y = push.y;
        int64_t f = from + int64_t(c) * push.sa[0], t = to + int64_t(c) * push.sy[0];
        if (TYPE_A == F32) Word32(y + uint64_t(t * 4)).v = Word32(x + uint64_t(f * 4)).v;
        else Word16(y + uint64_t(t * 2)).v = Word16(x + uint64_t(f * 2)).v;
        return;
    }
    Table pair = Table(address(2) + uint64_t(lane) * 16);
    int position = int(Word32(push.b + uint64_t(int64_t(at.z + uint(pair.first)) * push.sb[0] * 4)).v);
    uint64_t turns = pair.turns;
    bool lost = false;
    if ((FN & 2) != 0) {
        uint64_t factors = uint64_t(push.nb[0]) | uint64_t(push.nb[1]) << 32;
        uint f = Word32(factors + uint64_t(int64_t(lane) * int(push.nb[2]) * 4)).v, e = f >> 23 & 255u;
        lost = e == 0 || (e == 255 && (f & 0x7fffffu) != 0); // nothing turns by the inverse of 0 or of NaN
        turns = divided(turns, f);
    }
    uint64_t phase = uint64_t(int64_t(position)) * turns;
    uint top = uint(phase >> 32), quarters = (top + 0x20000000u) >> 30; // the nearest quarter turn, and what is left of it
    vec2 sc = turn_by(int(quarters), float(int(top - (quarters << 30))) * 1.4629180792671596e-9);
    if (lost) sc = vec2(not_a_number());
    uint u = (FN & 1) == 0 ? first + 2 * lane : first + lane, v = (FN & 1) == 0 ? u + 1 : u + pairs;
    float a = load(TYPE_A, push.a, from + int64_t(u) * push.sa[0]), b = load(TYPE_A, push.a, from + int64_t(v) * push.sa[0]);
    float s = number(4) * sc.x, c = number(5) * sc.y;
    store(TYPE_Y, push.y, to + int64_t(u) * push.sy[0], a * c - b * s);
    store(TYPE_Y, push.y, to + int64_t(v) * push.sy[0], a * s + b * c);
}
