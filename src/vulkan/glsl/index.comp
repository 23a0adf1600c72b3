#version 450
// Slices chosen by index. Everything is seen as (inner, middle, outer): the middle axis of the table has the places, that of what is
// gathered or scattered one element for each index. An index that names no place gives nothing and leaves the step's number in the
// status word, which the host reads after the run.
// FN 0: gather, as words. 1: chains the indices that name the same place, in their order: head[place], then next[index].
// 2: adds the chain of each place onto the table, or onto zero. 3: puts slices, the last of equal indices staying.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;

// Must agree with index_block in vk_pack_index.c.
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Block {
    uint64_t table, slices, indices, head, next, status;
    int s_table[3], s_slices[3], s_indices[2]; // of the indices: middle, outer
    uint inner, places, updates, outer, index_outer, index_type, step_number, from_zero;
};

Block B;
const uint NOWHERE = 0xffffffffu, I64 = 1;

// The place that index p of outer o names, NOWHERE when there is no such.
uint place_of(uint p, uint o) {
    int64_t at = int64_t(p) * B.s_indices[0] + int64_t(o) * B.s_indices[1];
    if (B.index_type == I64) {
        uvec2 w = Word64(B.indices + uint64_t(at * 8)).v;
        return w.y != 0 || w.x >= B.places ? NOWHERE : w.x;
    }
    uint w = Word32(B.indices + uint64_t(at * 4)).v;
    return w >= B.places ? NOWHERE : w;
}

int64_t in_table(uint i, uint m, uint o) { return int64_t(i) * B.s_table[0] + int64_t(m) * B.s_table[1] + int64_t(o) * B.s_table[2]; }
int64_t in_slices(uint i, uint m, uint o) { return int64_t(i) * B.s_slices[0] + int64_t(m) * B.s_slices[1] + int64_t(o) * B.s_slices[2]; }
void complain() { atomicMin(Word32(B.status).v, B.step_number); }

void gather(uint i, uint p, uint o) {
    uint m = place_of(p, o);
    if (m == NOWHERE) {
        complain();
        return;
    }
    uint64_t size = bytes_of(TYPE_A);
    uint64_t from = B.table + uint64_t(in_table(i, m, o)) * size, to = B.slices + uint64_t(in_slices(i, p, o)) * size;
    if (TYPE_A == RAW8) Word8(to).v = Word8(from).v;
    else if (TYPE_A == RAW16) Word16(to).v = Word16(from).v;
    else if (TYPE_A == RAW32) Word32(to).v = Word32(from).v;
    else Word64(to).v = Word64(from).v;
}

void chain(uint p, uint o) {
    uint m = place_of(p, o), later = p + 1;
    if (m == NOWHERE) {
        complain();
        return;
    }
    while (later < B.updates && place_of(later, o) != m) later++;
    Word32(B.next + uint64_t(o * B.updates + p) * 4).v = later < B.updates ? later : NOWHERE;
    for (uint before = 0; before < p; before++)
        if (place_of(before, o) == m) return;
    Word32(B.head + uint64_t(o * B.places + m) * 4).v = p;
}

void add(uint i, uint m, uint o) {
    uint list = B.index_outer == 1 ? 0 : o, p = Word32(B.head + uint64_t(list * B.places + m) * 4).v;
    if (B.from_zero == 0 && p == NOWHERE) return;
    float sum = B.from_zero != 0 ? 0.0 : load(TYPE_Y, B.table, in_table(i, m, o));
    for (; p != NOWHERE; p = Word32(B.next + uint64_t(list * B.updates + p) * 4).v) sum += load(TYPE_A, B.slices, in_slices(i, p, o));
    store(TYPE_Y, B.table, in_table(i, m, o), sum);
}

void put(uint i, uint p, uint o) {
    uint m = place_of(p, o);
    if (m == NOWHERE) {
        complain();
        return;
    }
    for (uint later = p + 1; later < B.updates; later++)
        if (place_of(later, o) == m) return;
    store(TYPE_Y, B.table, in_table(i, m, o), load(TYPE_A, B.slices, in_slices(i, p, o)));
}

void main() {
    B = Block(address(0));
    uint number_of = group() * 256 + gl_LocalInvocationID.x, middle = FN == 2 ? B.places : B.updates;
    if (FN == 1) {
        if (number_of < B.updates * B.index_outer) chain(number_of % B.updates, number_of / B.updates);
        return;
    }
    uint i = number_of % B.inner, rest = number_of / B.inner, m = rest % middle, o = rest / middle;
    if (o >= B.outer) return;
    if (FN == 0) gather(i, m, o);
    else if (FN == 2) add(i, m, o);
    else put(i, m, o);
}
