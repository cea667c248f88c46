// The cache of keys and values of many sequences, in pages: page number n of k and v is
// [page][kv_heads][head_dim], and row s of the table says which pages have the positions
// 0 to page-1, page to 2·page-1, … of sequence s.
//
//     qkv: [batch][(heads + 2·kv_heads) · head_dim], queries, keys and values
//     rows: [batch][2], position and sequence    table: [sequences][pages]
//
// The includer has before this the bindings and the inline block with those names.

#include "padding.glsl"

// The elements of a row of qkv, of the keys of one position, and of a page. They are
// of sizes that takes has allowed.
uint rowLength() {
    return (heads + 2u * kv_heads) * head_dim;
}

uint width() {
    return kv_heads * head_dim;
}

// Whether the sizes are such as the kernels take, and qkv has room for them. Buffers
// have at most 2^30 elements, so a row of heads that fit does not wrap.
bool takes(uint mostDim) {
    uint room = uint(qkv.length());
    bool shape = head_dim <= mostDim && kv_heads != 0u && heads % max(kv_heads, 1u) == 0u;
    bool paged = page != 0u && (page & (page - 1u)) == 0u;
    bool whole = fits(heads, head_dim, room) && fits(kv_heads, head_dim, room);
    return shape && paged && whole && fits(batch, rowLength(), room);
}

// How many whole pages a cache of so many elements has.
uint pagesOf(uint length) {
    return fits(page, width(), length) ? length / max(page * width(), 1u) : 0u;
}

// Whether the table has a page for this position of the sequence.
bool inTable(uint position, uint sequence) {
    return position / page < pages && sequence < uint(table.length()) / max(pages, 1u);
}

// The number of that page.
uint pageOf(uint position, uint sequence) {
    return table[sequence * pages + position / page];
}
