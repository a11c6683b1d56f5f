// The matrix products between two kernels (see device_matmul.h): from sources and tokens with any
// strides to as few calls of the library as these allow.
#include "runtime/device_matmul.h"

#include <pthread.h>
#include <stdlib.h>

static const base_loc nowhere;

enum {
  ALIGNMENT = 128,             // of workspaces
  BUCKETS = 64,                // of made products
  LIMIT = 32 << 20,            // bytes of workspace that the library may ask for
  ROW_FLOATS = 4,              // rows of P begin at multiples of so many
  MAX_LEVELS = RT_MAX_RANK + 1 // sources, token axes
};

typedef struct made_product {
  struct made_product *next;
  rt_matmul_shape shape;
  rt_matmul *matmul;
} made_product;

struct rt_products {
  rt_device *device;
  const rt_product *product;
  pthread_mutex_t lock;
  made_product *buckets[BUCKETS];
};

// ---- shapes -------------------------------------------------------------------------------------

// One call: matrices of a batch, and the addresses that it begins at.
typedef struct part {
  rt_matmul_shape shape;
  const char *a;
  int64_t d; // floats from the start of P
} part;

// Rows of the product are walked along levels, outermost first; `to` is a step in P. Strides in
// elements.
typedef struct level {
  int64_t size, from, to;
} level;

static int64_t row_floats(const rt_product *product) {
  return (product->n + ROW_FLOATS - 1) / ROW_FLOATS * ROW_FLOATS;
}

static int position_of(const rt_slot *slot, uint32_t axis) {
  for (uint32_t i = 0; i < slot->rank; i++)
    if (slot->axes[i] == axis) return (int)i;
  return -1;
}

static int64_t stride_of(const rt_tensor *tensor, int position) {
  return position < 0 || tensor->shape[position] <= 1 ? 0 : tensor->strides[position];
}

static int64_t token_total(const rt_product *product, const rt_bound *bound) {
  int64_t total = 1;
  for (uint32_t i = 0; i < product->token_count; i++)
    total *= bound->sizes[product->tokens[i]];
  return total;
}

// How many sources from `first` on lie one step apart in one tensor, and that step in elements.
static uint32_t count_alike(const rt_product *product, const rt_tensor *tensor, uint32_t first,
                            int64_t *step) {
  const rt_source *sources = product->sources;
  uint32_t count = 1;
  *step = 0;
  while (first + count < product->source_count) {
    const rt_source *a = &sources[first + count - 1], *b = a + 1;
    int64_t next = 0;
    bool lists = tensor->slices && a->index[0] != b->index[0];
    for (uint32_t i = tensor->slices ? 1 : 0; i < tensor->rank; i++)
      next += (b->index[i] - a->index[i]) * stride_of(tensor, (int)i);
    if (a->arg != b->arg || lists || (count > 1 && next != *step)) break;
    *step = next;
    count++;
  }
  return count;
}

// Takes from the innermost levels what one call can do: rows of a matrix, then matrices of a batch.
// Returns how many levels are left.
static uint32_t fold(const rt_product *product, const level *levels, uint32_t count, part *out) {
  rt_matmul_shape *shape = &out->shape;
  *shape = (rt_matmul_shape){.dtype = product->dtype,
                             .m = 1,
                             .n = product->n,
                             .k = product->k,
                             .batches = 1,
                             .a = {.row_stride = product->k, .alignment = 16},
                             .b = {.row_stride = product->k, .alignment = 16},
                             .d = {.row_stride = row_floats(product), .alignment = 16}};
  for (; count > 0; count--) {
    const level *next = &levels[count - 1];
    if (next->size == 1) continue;
    bool first = shape->m == 1;
    if (!first && next->from != shape->m * shape->a.row_stride) break;
    if (first) shape->a.row_stride = next->from;
    shape->m *= next->size;
  }
  for (; count > 0 && shape->batches == 1; count--) {
    const level *next = &levels[count - 1];
    if (next->size == 1) continue;
    shape->batches = next->size;
    shape->a.batch_stride = next->from;
    shape->d.batch_stride = next->to;
  }
  return count;
}

// ---- walking all parts --------------------------------------------------------------------------

typedef base_status (*part_function)(void *user, const part *part, uint32_t slot);

typedef struct walk {
  const rt_product *product;
  const rt_bound *bound;
  const rt_kernel *kernel;
  part_function function;
  void *user;
} walk;

// The levels that no call takes are walked one index at a time.
static base_status walk_levels(const walk *w, const level *levels, uint32_t count, part *part,
                               uint32_t slot) {
  if (count == 0) return w->function(w->user, part, slot);
  int64_t element = (int64_t)rt_dtype_size(w->product->dtype);
  struct part inner = *part;
  base_status status = BASE_OK;
  for (int64_t i = 0; i < levels[count - 1].size && status == BASE_OK; i++) {
    status = walk_levels(w, levels, count - 1, &inner, slot);
    inner.a = rt_shift(inner.a, levels[count - 1].from * element);
    inner.d += levels[count - 1].to;
  }
  return status;
}

static base_status walk_parts(const walk *w) {
  const rt_product *product = w->product;
  int64_t tokens = token_total(product, w->bound), row = row_floats(product);
  for (uint32_t first = 0, count; first < product->source_count; first += count) {
    const rt_source *source = &product->sources[first];
    uint32_t slot = w->kernel->args[source->arg].slot;
    rt_tensor tensor = rt_plan_tensor(w->bound, slot);
    level levels[MAX_LEVELS];
    count = count_alike(product, &tensor, first, &levels[0].from);
    levels[0].size = count;
    levels[0].to = tokens * row;
    int64_t below = row;
    for (uint32_t i = product->token_count; i-- > 0;) {
      int position = position_of(&w->bound->program->slots[slot], product->tokens[i]);
      levels[i + 1] =
          (level){w->bound->sizes[product->tokens[i]], stride_of(&tensor, position), below};
      below *= levels[i + 1].size;
    }
    part part = {.d = (int64_t)first * tokens * row};
    part.a = tensor.slices ? tensor.slices[source->index[0]] : tensor.data;
    for (uint32_t i = tensor.slices ? 1 : 0; i < tensor.rank; i++)
      part.a = rt_shift(part.a, source->index[i] * stride_of(&tensor, (int)i) *
                                    (int64_t)rt_dtype_size(tensor.dtype));
    uint32_t left = fold(product, levels, product->token_count + 1, &part);
    base_status status = walk_levels(w, levels, left, &part, slot);
    if (status != BASE_OK) return status;
  }
  return BASE_OK;
}

// ---- made products ------------------------------------------------------------------------------

static bool same_shape(const rt_matmul_shape *a, const rt_matmul_shape *b) {
  return a->m == b->m && a->batches == b->batches && a->a.row_stride == b->a.row_stride &&
         a->a.batch_stride == b->a.batch_stride && a->d.batch_stride == b->d.batch_stride;
}

static made_product **bucket_of(rt_products *products, const rt_matmul_shape *shape) {
  const int64_t key[] = {shape->m, shape->batches, shape->a.row_stride, shape->a.batch_stride,
                         shape->d.batch_stride};
  return &products->buckets[base_hash_bytes(key, sizeof key).low % BUCKETS];
}

// NULL when it was not made. A product that is made stays, unchanged.
static const made_product *find_made(rt_products *products, const rt_matmul_shape *shape) {
  pthread_mutex_lock(&products->lock);
  const made_product *made = *bucket_of(products, shape);
  while (made && !same_shape(&made->shape, shape))
    made = made->next;
  pthread_mutex_unlock(&products->lock);
  return made;
}

// Nothing is held while the device reports: a report may run out of memory and jump.
static base_status make(rt_products *products, const rt_matmul_shape *shape,
                        const made_product **out, base_diag *diag) {
  const rt_device_ops *ops = products->device->ops;
  rt_matmul *matmul;
  base_status status = ops->matmul_create(products->device, shape, LIMIT, &matmul, diag);
  if (status != BASE_OK) return status;
  made_product *made = calloc(1, sizeof *made);
  if (!made) {
    ops->matmul_destroy(products->device, matmul);
    base_error_status(diag, BASE_MEMORY, nowhere, "out of memory");
    return BASE_MEMORY;
  }
  made->matmul = matmul;
  made->shape = *shape;
  // Another thread may have made it meanwhile; then there are two, and the first is found.
  pthread_mutex_lock(&products->lock);
  made_product **bucket = bucket_of(products, shape);
  while (*bucket)
    bucket = &(*bucket)->next;
  *bucket = made;
  pthread_mutex_unlock(&products->lock);
  *out = made;
  return BASE_OK;
}

base_status rt_products_create(rt_device *device, const rt_product *product, rt_products **out,
                               base_diag *diag) {
  *out = NULL;
  if (!device->ops->matmul_create) {
    base_error_status(diag, BASE_UNSUPPORTED, nowhere,
                      "%s has no library of matrix products, which schedule logits=2 needs",
                      device->facts.name);
    base_hint(diag, "use logits=0 or logits=1");
    return BASE_UNSUPPORTED;
  }
  rt_products *products = calloc(1, sizeof *products);
  if (!products) {
    base_error_status(diag, BASE_MEMORY, nowhere, "out of memory");
    return BASE_MEMORY;
  }
  products->device = device;
  products->product = product;
  pthread_mutex_init(&products->lock, NULL);
  *out = products;
  return BASE_OK;
}

void rt_products_destroy(rt_products *products) {
  if (!products) return;
  for (uint32_t i = 0; i < BUCKETS; i++)
    while (products->buckets[i]) {
      made_product *made = products->buckets[i];
      products->buckets[i] = made->next;
      products->device->ops->matmul_destroy(products->device, made->matmul);
      free(made);
    }
  pthread_mutex_destroy(&products->lock);
  free(products);
}

// ---- sizes --------------------------------------------------------------------------------------

static base_status check_part(void *user, const part *part, uint32_t slot) {
  (void)user, (void)slot;
  const rt_matmul_shape *shape = &part->shape;
  bool fits = shape->a.row_stride >= shape->k && shape->a.batch_stride >= 0 &&
              shape->m <= INT32_MAX && shape->batches <= INT32_MAX;
  return fits ? BASE_OK : BASE_UNSUPPORTED;
}

bool rt_products_fit(rt_products *products, const rt_bound *bound, const rt_kernel *kernel) {
  walk w = {products->product, bound, kernel, check_part, NULL};
  return walk_parts(&w) == BASE_OK;
}

size_t rt_products_bytes(rt_products *products, const rt_bound *bound) {
  const rt_product *product = products->product;
  size_t bytes = sizeof(float) * (size_t)row_floats(product) * product->source_count;
  bool overflow = false;
  for (uint32_t i = 0; i < product->token_count; i++)
    overflow |= __builtin_mul_overflow(bytes, bound->sizes[product->tokens[i]], &bytes);
  if (overflow || bytes > SIZE_MAX / 4) return SIZE_MAX / 4; // more than there is anywhere
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

typedef struct planning {
  rt_products *products;
  size_t bytes;
  base_diag *diag;
} planning;

static base_status plan_part(void *user, const part *part, uint32_t slot) {
  (void)slot;
  planning *p = user;
  const made_product *made = find_made(p->products, &part->shape);
  base_status status = made ? BASE_OK : make(p->products, &part->shape, &made, p->diag);
  if (status != BASE_OK) return status;
  size_t needed = p->products->device->ops->matmul_workspace(made->matmul);
  if (needed > p->bytes) p->bytes = needed;
  return BASE_OK;
}

base_status rt_products_plan(rt_products *products, const rt_bound *bound, const rt_kernel *kernel,
                             size_t *bytes, base_diag *diag) {
  planning p = {products, 0, diag};
  walk w = {products->product, bound, kernel, plan_part, &p};
  base_status status = walk_parts(&w);
  *bytes = p.bytes;
  return status;
}

// ---- running ------------------------------------------------------------------------------------

typedef struct running {
  rt_products *products;
  const char *b;
  float *d;
  void *workspace, *stream;
  rt_traffic *traffic;
  base_diag *diag;
} running;

static base_status run_part(void *user, const part *part, uint32_t slot) {
  const running *r = user;
  rt_device *device = r->products->device;
  const rt_matmul_shape *shape = &part->shape;
  const made_product *made = find_made(r->products, shape);
  if (!made) {
    base_error(r->diag, nowhere, "no workspace was asked for with these sizes and strides");
    base_hint(r->diag, "ask for the workspace's size with the tensors that are to be run");
    return BASE_INVALID;
  }
  if (r->traffic) { // at least this, from memory; P and B are no arguments
    uint64_t bytes = (uint64_t)(shape->m * shape->k * shape->batches) * rt_dtype_size(shape->dtype);
    r->traffic[slot].read += bytes;
    r->traffic[slot].read_once += bytes;
  }
  return device->ops->matmul_run(device, made->matmul, part->a, r->b, r->d + part->d, r->workspace,
                                 r->stream, r->diag);
}

base_status rt_products_run(rt_products *products, const rt_bound *bound, const rt_kernel *kernel,
                            const char *prepared, char *result, void *stream, rt_traffic *traffic,
                            base_diag *diag) {
  running r = {.products = products,
               .b = prepared,
               .d = (float *)result,
               .workspace = result + rt_products_bytes(products, bound),
               .stream = stream,
               .traffic = traffic,
               .diag = diag};
  walk w = {products->product, bound, kernel, run_part, &r};
  return walk_parts(&w);
}
