// Do two strided tensors share a byte?
//
// Exact answers need integer programming; hosts need the cases that occur in practice, quickly, and
// never a wrong "no". Two tests show that regions are disjoint: their extents do not meet, or, seen
// modulo one of the strides, they live in different columns (outputs that are columns of one
// row-major allocation). What neither shows counts as touching.
#include "runtime/plan.h"

#include <stdlib.h>

static bool is_empty(const rt_region *region) {
  for (uint32_t i = 0; i < region->rank; i++) {
    if (region->size[i] == 0) return true;
  }
  return false;
}

bool rt_region_extent(const rt_region *region, int64_t *low, int64_t *high) {
  *low = *high = 0;
  if (is_empty(region)) return true;
  bool overflow = false;
  for (uint32_t i = 0; i < region->rank; i++) {
    int64_t reach;
    overflow |= __builtin_mul_overflow(region->stride[i], region->size[i] - 1, &reach);
    int64_t *end = reach < 0 ? low : high;
    overflow |= __builtin_add_overflow(*end, reach, end);
  }
  int64_t address;
  overflow |= __builtin_add_overflow(*high, region->element, high);
  overflow |= __builtin_add_overflow(region->base, *low, &address) || address < 0;
  overflow |= __builtin_add_overflow(region->base, *high, &address) || address < 0;
  return !overflow;
}

// The bytes [first, first + span) that hold every element once strides that are multiples of
// `modulus` are left out: modulo `modulus`, the region lies inside them.
static void column_of(const rt_region *region, int64_t modulus, int64_t *first, int64_t *span) {
  *first = region->base;
  *span = region->element;
  for (uint32_t i = 0; i < region->rank; i++) {
    if (region->size[i] == 1 || region->stride[i] % modulus == 0) continue;
    int64_t reach = region->stride[i] * (region->size[i] - 1);
    if (reach < 0) *first += reach;
    *span += llabs(reach);
  }
}

static bool apart_modulo(const rt_region *a, const rt_region *b, int64_t modulus) {
  int64_t first_a, span_a, first_b, span_b;
  column_of(a, modulus, &first_a, &span_a);
  column_of(b, modulus, &first_b, &span_b);
  int64_t distance = (first_b - first_a) % modulus;
  if (distance < 0) distance += modulus;
  return distance >= span_a && span_b <= modulus - distance;
}

// True when some stride of `strides` keeps the two apart.
static bool apart_by_strides_of(const rt_region *strides, const rt_region *a, const rt_region *b) {
  for (uint32_t i = 0; i < strides->rank; i++) {
    if (strides->size[i] == 1 || strides->stride[i] == 0) continue;
    if (apart_modulo(a, b, llabs(strides->stride[i]))) return true;
  }
  return false;
}

bool rt_regions_touch(const rt_region *a, const rt_region *b) {
  if (is_empty(a) || is_empty(b)) return false;
  int64_t low_a, high_a, low_b, high_b;
  rt_region_extent(a, &low_a, &high_a);
  rt_region_extent(b, &low_b, &high_b);
  if (a->base + high_a <= b->base + low_b || b->base + high_b <= a->base + low_a) return false;
  return !apart_by_strides_of(a, a, b) && !apart_by_strides_of(b, a, b);
}

int rt_region_self_overlap(const rt_region *region) {
  if (is_empty(region)) return -1;
  int order[RT_MAX_RANK];
  uint32_t count = 0;
  for (uint32_t i = 0; i < region->rank; i++) { // positions by stride, smallest first
    if (region->size[i] == 1) continue;
    uint32_t at = count++;
    for (; at > 0 && llabs(region->stride[order[at - 1]]) > llabs(region->stride[i]); at--) {
      order[at] = order[at - 1];
    }
    order[at] = (int)i;
  }
  int64_t span = region->element; // of the positions before
  for (uint32_t k = 0; k < count; k++) {
    int64_t stride = llabs(region->stride[order[k]]);
    if (stride < span) return order[k];
    span += stride * (region->size[order[k]] - 1);
  }
  return -1;
}
