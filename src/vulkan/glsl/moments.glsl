// Mean and squares of the n numbers that row_value gives, for kernels with rows.glsl. A mean from sums in lanes lacks a little, which
// is all there is of a row of nearly one number: what it lacks is summed, too. Where squares are beyond what a float holds, all is
// taken times `scale`, a power of two: numbers, mean and squares; else that is 1.
float row_value(uint i);
float scale = 1.0, mean = 0.0, lacks = 0.0, squares = 0.0;
int power = 0; // of two, that scale is
shared vec2 lane_pair[256];

vec2 row_sum_pair(vec2 mine) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    lane_pair[lane] = mine;
    barrier();
    for (uint half_way = 128; half_way > 0; half_way /= 2) {
        if (lane < half_way) lane_pair[lane] += lane_pair[lane + half_way];
        barrier();
    }
    return lane_pair[0];
}

// x times scale, by its bits: a compiler may take a factor out of a sum, or make one of two, and the sum of a row's numbers, or what
// scale and the row's own factor come to, may be beyond a float.
float scaled(float x) {
    uint u = floatBitsToUint(x), e = u >> 23 & 255u;
    if (power == 0 || e == 255u) return x;
    if (e == 0u) return x * scale;
    return int(e) + power > 0 ? uintBitsToFloat(u + (uint(power) << 23)) : 0.0;
}

void add_up(uint n, bool centred) {
    uint lane = gl_LocalInvocationID.x;
    vec2 sums = vec2(0.0);
    if (centred) {
        float sum = 0.0;
        for (uint i = lane; i < n; i += 256) sum += scaled(row_value(i));
        mean = row_sum(sum) / float(n);
    }
    for (uint i = lane; i < n; i += 256) {
        float d = scaled(row_value(i)) - mean;
        sums += vec2(d, d * d);
    }
    if (!centred) {
        squares = row_sum(sums.y);
        return;
    }
    sums = row_sum_pair(sums);
    lacks = sums.x / float(n);
    if (!is_finite(lacks)) lacks = 0.0; // of an infinite mean
    squares = sums.y - sums.x * lacks;
    if (is_finite(squares) && squares < 0.0) squares = 0.0;
}

// eps: what is added to the mean of the squares.
void find_moments(uint n, bool centred, float eps) {
    add_up(n, centred);
    float size = squares / float(n) + eps, most = 0.0;
    if (is_finite(size) && size > 1e-30 && size < 1e38) return;
    for (uint i = gl_LocalInvocationID.x; i < n; i += 256) most = max(most, abs(row_value(i)));
    most = row_max(most);
    if (!is_finite(most) || is_zero(most)) return;
    power = min(147 - int(floatBitsToUint(most) >> 23), 60); // the largest becomes some 2^20
    scale = uintBitsToFloat(uint(127 + power) << 23);
    add_up(n, centred);
}

// How far x is from the mean, and a gradient that is so far off, each times `by`.
float normalised(float x, float by) {
    return (scaled(x) - mean - lacks) * by;
}
float unscaled(float g, float by) {
    precise float d = (g * scale) * by;
    return d;
}
float true_mean() { return (mean + lacks) / scale; }

// eps beside such squares. It does not become 0, or numbers that are all the same would be divided by that.
float scaled_eps(float eps) { return scale == 1.0 || eps <= 0.0 ? eps : max(eps * scale * scale, 1e-30); }
