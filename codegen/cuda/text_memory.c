// Arguments and places in the text: their names, the struct of arguments, addresses, loads and
// stores. All that touches global memory goes through the prelude's functions.
#include <string.h>

#include "codegen/cuda/text.h"

enum { LARGEST_ACCESS = 16 }; // bytes

#define IDENTIFIER "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

static const ir_type *type_of(const text_printer *p, ir_value value) {
  return &ir_node_of(p->graph, value)->type;
}

// ---- arguments ----------------------------------------------------------------------------------

static const char **new_names(text_printer *p, size_t count) {
  return base_new_array(p->arena, const char *, count + 1);
}

static const char *joined_name(text_printer *p, const char *first, base_str second) {
  return text_name(p, base_str_format(p->arena, "%s_%.*s", first, BASE_FMT(second)));
}

static void name_argument(text_printer *p, uint32_t arg) {
  const ir_type *type = type_of(p, p->kernel->args.data[arg].value);
  const char *name = p->arg_names[arg];
  uint32_t first = kir_first_stride(p->kernel, arg);
  for (uint32_t i = 0; i < type->rank; i++)
    p->stride_names[first + i] =
        joined_name(p, name, p->graph->axes.data[type->axes[i].index].name);
  p->row_names[arg] = joined_name(p, name, BASE_STR("row"));
  p->held_names[arg] = joined_name(p, name, BASE_STR("held"));
}

// Arguments first: they keep their names whatever is made of those.
void text_name_memory(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  uint32_t count = kernel->args.count;
  p->arg_names = new_names(p, count);
  p->row_names = new_names(p, count);
  p->held_names = new_names(p, count);
  p->unpacked = base_new_array(p->arena, uint32_t, p->graph->nodes.count);
  p->stride_names = new_names(p, kir_first_stride(kernel, count));
  p->size_names = new_names(p, p->graph->axes.count);
  p->index_names = new_names(p, p->graph->axes.count);
  p->value_names = new_names(p, p->graph->nodes.count);
  p->place_names = new_names(p, p->graph->nodes.count);
  p->factor_names = new_names(p, kernel->chain.maxima.count);
  p->before_names = new_names(p, kernel->chain.maxima.count);
  for (uint32_t i = 0; i < count; i++)
    p->arg_names[i] = text_name(p, ir_node_of(p->graph, kernel->args.data[i].value)->name);
  for (uint32_t i = 0; i < count; i++)
    name_argument(p, i);
  for (uint32_t i = 0; i < kernel->row_count; i++) {
    ir_axis axis = kernel->rows[i];
    p->size_names[axis.index] = joined_name(p, "size", p->graph->axes.data[axis.index].name);
    p->index_names[axis.index] = kernel->row_count > 1 ? text_row_name(p, axis) : "row";
  }
}

static const char *stride_name(const text_printer *p, uint32_t arg, uint32_t position) {
  return p->stride_names[kir_first_stride(p->kernel, arg) + position];
}

// In the order in which the launcher fills them in: pointers, strides, sizes, workspace.
void text_print_arguments(text_printer *p, base_text *out) {
  const kir_kernel *kernel = p->kernel;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = type_of(p, arg->value);
    base_text list = {.arena = p->arena};
    if (kir_pointer_count(kernel, i) == 0) continue; // a list of nothing: nobody reads it
    if (arg->sliced) base_text_printf(&list, "[%u]", kir_pointer_count(kernel, i));
    base_text_printf(out, "  %s%s *%s%s; // ", arg->written ? "" : "const ", text_type(type->dtype),
                     p->arg_names[i], list.data ? list.data : "");
    ir_print_type(p->graph, type, out);
    base_text_printf(out, "%s\n", arg->temporary ? ", between kernels" : "");
  }
  base_text_printf(out, "  // bytes from one index of an axis to the next\n");
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const ir_type *type = type_of(p, kernel->args.data[i].value);
    if (!type->rank) continue;
    base_text_printf(out, "  long long ");
    for (uint32_t j = 0; j < type->rank; j++)
      base_text_printf(out, "%s%s", j ? ", " : "", stride_name(p, i, j));
    base_text_printf(out, ";\n");
  }
  for (uint32_t i = 0; i < kernel->row_count; i++)
    base_text_printf(out, "  long long %s;\n", p->size_names[kernel->rows[i].index]);
  base_text_printf(out, "  char *workspace;\n");
}

// Position in the type of the axis along which the point's elements lie; -1 for none.
static int32_t lane_position(const text_printer *p, const ir_type *type, const text_point *point) {
  if (p->vector == 1) return -1;
  for (uint32_t i = 0; i < type->rank; i++)
    if (point->lanes & ir_axis_bit(type->axes[i])) return (int32_t)i;
  return -1;
}

// What the row adds to an argument's addresses, under a name in the row's scope.
static const char *row_offset(text_printer *p, uint32_t arg) {
  const ir_type *type = type_of(p, p->kernel->args.data[arg].value);
  base_text sum = {.arena = p->arena};
  for (uint32_t i = 0; i < type->rank; i++)
    if (p->kernel->axes[type->axes[i].index].row)
      base_text_printf(&sum, "%s%s * a.%s", sum.length ? " + " : "",
                       p->rows.index[type->axes[i].index].text, stride_name(p, arg, i));
  if (!sum.length || p->phase != KIR_BODY) return NULL;
  const char *name = p->row_names[arg];
  for (uint32_t i = 0; i < p->row_offsets.count; i++)
    if (p->row_offsets.data[i] == (int32_t)arg) return name;
  base_push(p->arena, &p->row_offsets, (int32_t)arg);
  text_line(p, p->offset_scope, "const long long %s = %s;", name, sum.data);
  return name;
}

// Index 0 adds nothing, and a dense axis needs no stride of the caller's.
static void add_term(text_printer *p, base_text *sum, uint32_t arg, uint32_t position,
                     const char *index) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  if (strcmp(index, "0") == 0) return;
  if (sum->length) base_text_printf(sum, " + ");
  if ((int32_t)position == info->unit_position && p->kernel->team.vector > 1)
    base_text_printf(sum, "%s * %zu", index, ir_dtype_size(type->dtype));
  else
    base_text_printf(sum, "%s * a.%s", index, stride_name(p, arg, position));
}

static const char *address(text_printer *p, uint32_t arg, const text_point *point) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  const char *row = row_offset(p, arg);
  base_text sum = {.arena = p->arena};
  if (row) base_text_printf(&sum, "%s", row);
  for (uint32_t i = info->sliced ? 1 : 0; i < type->rank; i++)
    if (!p->kernel->axes[type->axes[i].index].row)
      add_term(p, &sum, arg, i, point->index[type->axes[i].index].text);
  const char *base = info->sliced ? text_format(p, "a.%s[%s]", p->arg_names[arg],
                                                point->index[type->axes[0].index].text)
                                  : text_format(p, "a.%s", p->arg_names[arg]);
  return sum.length ? text_format(p, "fm_at(%s, %s)", base, sum.data) : base;
}

static const char *fresh(text_printer *p, ir_value value) {
  return text_name(p, ir_node_of(p->graph, value)->name);
}

// ---- rows that wait in registers ----------------------------------------------------------------

static uint32_t access_bytes(const text_printer *p, ir_dtype dtype) {
  return p->kernel->team.vector * (uint32_t)ir_dtype_size(dtype);
}

// [index of each outer axis][turn]; of a tile's axis the number in the tile.
static const char *held_element(text_printer *p, const char *name, const ir_type *type,
                                ir_axis lane, const ir_axis *source, const text_point *point) {
  base_text out = {.arena = p->arena};
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(p->kernel, type, axes, 0);
  base_text_printf(&out, "%s", name);
  for (uint32_t i = 0; i < count; i++) {
    const text_index *index = &point->index[axes[i].index];
    bool tiled = source && source->index == axes[i].index;
    if (axes[i].index != lane.index)
      base_text_printf(&out, "[%s]", tiled ? index->offset : index->text);
  }
  base_text_printf(&out, "[%s]", point->turn);
  return out.data;
}

// Registers that hold packed values, to a vector of that name.
static void unpack_registers(text_printer *p, ir_value value, const char *name,
                             const char *registers) {
  uint32_t *first = &p->unpacked[value.index];
  if (!*first) *first = p->sweep + 1;
  text_line(p, text_top(p), "fm_unpack%s<%s>(%s, %s);", *first == p->sweep + 1 ? "" : "_again",
            text_type(type_of(p, value)->dtype), name, registers);
}

// Is the point at the thread's own elements of this axis?
static bool is_own(const text_point *point, ir_axis lane) {
  return point->turn && point->lane.index == lane.index;
}

static void declare_dimensions(text_printer *p, base_text *out, const ir_type *type, ir_axis lane,
                               const ir_axis *source, bool single) {
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(p->kernel, type, axes, 0);
  for (uint32_t i = 0; i < count; i++)
    if (axes[i].index != lane.index) {
      bool tiled = source && source->index == axes[i].index;
      int64_t size = tiled ? p->count : p->kernel->axes[axes[i].index].size;
      base_text_printf(out, "[%lld]", (long long)(size > 0 ? size : 1));
    }
  uint32_t threads = p->kernel->team.threads * p->kernel->team.split;
  base_text_printf(out, "[%lld]", (long long)kir_turns(p->kernel, lane, threads, single));
}

// ---- rows on their way through shared memory ----------------------------------------------------

// The thread's own elements of a staged row: all turns of a thread's accesses one after the other.
static const char *staged_element(text_printer *p, uint32_t arg, const text_point *point) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  const kir_team *team = &p->kernel->team;
  ir_axis lane = type->axes[info->unit_position];
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(p->kernel, type, axes, 0), bytes = access_bytes(p, type->dtype);
  base_text sum = {.arena = p->arena};
  size_t step = info->stage_row;
  base_text_printf(&sum, "%s", text_offset(p, "stage", info->stage_offset));
  for (uint32_t i = count; i-- > 0;) {
    if (axes[i].index == lane.index) continue;
    if (strcmp(point->index[axes[i].index].text, "0") != 0)
      base_text_printf(&sum, " + %s * %zu", point->index[axes[i].index].text, step);
    step *= (size_t)p->kernel->axes[axes[i].index].size;
  }
  if (strcmp(point->turn, "0") == 0)
    base_text_printf(&sum, " + thread * %u", bytes);
  else
    base_text_printf(&sum, " + (turn * %u + thread) * %u", team->threads, bytes);
  return sum.data;
}

// The first element of a staged row.
static const char *staged_row(text_printer *p, uint32_t arg, const text_point *point) {
  text_point first = *point;
  first.turn = "0";
  const char *element = staged_element(p, arg, &first);
  return text_format(p, "%.*s", (int)(strstr(element, " + thread *") - element), element);
}

static uint32_t open_outer(text_printer *p, uint32_t arg, text_point *point) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(p->kernel, type, axes, 0), scopes = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (axes[i].index == type->axes[info->unit_position].index) continue;
    scopes += text_open_tile(p, axes[i], (text_index){.text = "0"},
                             p->kernel->axes[axes[i].index].size, point);
  }
  return scopes;
}

static void copy_own(text_printer *p, uint32_t arg) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  text_point point = p->rows;
  uint32_t scopes = open_outer(p, arg, &point);
  scopes += text_open_lanes(p, type->axes[info->unit_position], false, &point);
  text_line(p, text_top(p), "fm_copy_async<%u>(%s, %s);", access_bytes(p, type->dtype),
            staged_element(p, arg, &point), address(p, arg, &point));
  text_close_all(p, scopes);
}

static void copy_bulk(text_printer *p, uint32_t arg) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  ir_axis lane = type->axes[info->unit_position];
  text_point point = p->rows;
  uint32_t scopes = open_outer(p, arg, &point);
  text_set_axis(p, &point, lane, (text_index){.text = "0"}, false);
  text_line(p, text_top(p), "fm_bulk_copy(%s, %s, %zu, full);", staged_row(p, arg, &point),
            address(p, arg, &point),
            (size_t)p->kernel->axes[lane.index].size * ir_dtype_size(type->dtype));
  text_close_all(p, scopes);
}

static size_t bulk_bytes(const text_printer *p, const kir_arg *arg) {
  const ir_type *type = type_of(p, arg->value);
  size_t bytes = ir_dtype_size(type->dtype);
  for (uint32_t i = 0; i < type->rank; i++)
    if (!p->kernel->axes[type->axes[i].index].row)
      bytes *= (size_t)p->kernel->axes[type->axes[i].index].size;
  return bytes;
}

void text_copy_sources(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  size_t bytes = 0;
  for (uint32_t i = 0; i < kernel->args.count; i++)
    if (kernel->args.data[i].staged) bytes += bulk_bytes(p, &kernel->args.data[i]);
  if (kernel->schedule.load == 2) text_line(p, text_top(p), "fm_ring_expect(full, %zu);", bytes);
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    if (!kernel->args.data[i].staged) continue;
    if (kernel->schedule.load == 2)
      copy_bulk(p, i);
    else
      copy_own(p, i);
  }
}

// The sweep after which nothing reads the stage: the rows are in registers, or done with. -1: none
// reads it at all.
int32_t text_last_of_stage(const text_printer *p) {
  int32_t last = -1;
  for (uint32_t i = 0; i < p->kernel->args.count; i++) {
    const kir_arg *arg = &p->kernel->args.data[i];
    bool held = arg->residency == KIR_REGISTERS && !arg->tiled;
    if (arg->staged && !held && arg->last_sweep > last) last = arg->last_sweep;
  }
  return last;
}

static void hold_source(text_printer *p, uint32_t arg) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, info->value);
  ir_axis lane = type->axes[info->unit_position];
  uint32_t bytes = access_bytes(p, type->dtype);
  const ir_axis *source = info->tiled ? &info->source : NULL;
  base_text dimensions = {.arena = p->arena};
  declare_dimensions(p, &dimensions, type, lane, source, false);
  text_line(p, text_top(p), "fm_raw<%u> %s%s;", bytes, p->held_names[arg], dimensions.data);
  text_point point = p->rows;
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(p->kernel, type, axes, 0), scopes = 0;
  for (uint32_t i = 0; i < count; i++) {
    ir_axis axis = axes[i];
    if (axis.index == lane.index) continue;
    bool tiled = source && source->index == axis.index;
    text_index base = {.text = "0"};
    if (tiled) {
      base = p->base;
      base.text = text_sum(p, base.text, text_format(p, "%lld", -(long long)info->source_start));
    }
    scopes +=
        text_open_tile(p, axis, base, tiled ? p->count : p->kernel->axes[axis.index].size, &point);
  }
  scopes += text_open_lanes(p, lane, false, &point);
  const char *element = held_element(p, p->held_names[arg], type, lane, source, &point);
  if (info->staged)
    text_line(p, text_top(p), "%s = fm_shared_raw<%u>(%s);", element, bytes,
              staged_element(p, arg, &point));
  else
    text_line(p, text_top(p), "%s = fm_load_raw<%u>(%s);", element, bytes, address(p, arg, &point));
  text_close_all(p, scopes);
}

// Does the argument have all sources of the tile?
static bool has_tile(const text_printer *p, const kir_arg *arg) {
  const ir_type *type = type_of(p, arg->value);
  int64_t size = ir_type_has(type, arg->source) ? p->kernel->axes[arg->source.index].size : 0;
  return p->base.low >= arg->source_start && p->base.high <= arg->source_start + size;
}

void text_hold_sources(text_printer *p) {
  bool any = false;
  for (uint32_t i = 0; i < p->kernel->args.count; i++) {
    const kir_arg *arg = &p->kernel->args.data[i];
    if (arg->residency != KIR_REGISTERS || arg->tiled != p->in_tile) continue;
    if (p->in_tile && !has_tile(p, arg)) continue;
    if (!any)
      text_comment(p, "the rows that are used more than once: read here, kept in registers");
    any = true;
    hold_source(p, i);
  }
}

static bool has_place(const text_printer *p, uint32_t index) {
  kir_place place = p->kernel->values[index].place;
  return place == KIR_SCRATCH || place == KIR_SHARED;
}

bool text_keeps_registers(const text_printer *p) {
  for (uint32_t i = 0; i < p->kernel->args.count; i++)
    if (p->kernel->args.data[i].residency == KIR_REGISTERS) return true;
  for (uint32_t i = 0; i < p->graph->nodes.count; i++)
    if (p->kernel->values[i].residency == KIR_REGISTERS && p->kernel->values[i].row &&
        has_place(p, i))
      return true;
  return false;
}

bool text_indexes_registers(const text_printer *p, ir_axis axis) {
  for (uint32_t i = 0; i < p->kernel->args.count; i++) {
    const kir_arg *arg = &p->kernel->args.data[i];
    // A concat may have brought the argument's sources to the axis.
    if (arg->residency == KIR_REGISTERS && !arg->tiled && p->kernel->axes[axis.index].source)
      return true;
  }
  for (uint32_t i = 0; i < p->graph->nodes.count; i++) {
    ir_axis axes[KIR_MAX_LOOPS];
    uint32_t count = kir_refine(p->kernel, &p->graph->nodes.data[i].type, axes, 0);
    if (p->kernel->values[i].residency == KIR_REGISTERS && has_place(p, i) &&
        (ir_axes_set(count, axes) & ir_axis_bit(axis)))
      return true;
  }
  return false;
}

// ---- loading arguments --------------------------------------------------------------------------

// Does the row wait in registers? Of a tile's sources only those do that the tile's own index says.
static bool is_held(const text_printer *p, const kir_arg *arg, const text_point *point) {
  if (arg->residency != KIR_REGISTERS) return false;
  return !arg->tiled ||
         (p->in_tile && has_tile(p, arg) && point->index[arg->source.index].offset != NULL);
}

static text_term load_vector(text_printer *p, ir_value value, uint32_t arg, const text_point *point,
                             int32_t lane) {
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, value);
  const char *name = fresh(p, value), *dtype = text_type(type->dtype);
  uint32_t scope = text_top(p);
  text_line(p, scope, "float %s[%u];", name, p->vector);
  if (is_held(p, info, point) && is_own(point, type->axes[lane])) {
    const char *element = held_element(p, p->held_names[arg], type, type->axes[lane],
                                       info->tiled ? &info->source : NULL, point);
    unpack_registers(p, value, name, element);
  } else if (info->staged && is_own(point, type->axes[lane])) {
    text_line(p, scope, "fm_unpack<%s>(%s, fm_shared_raw<%u>(%s));", dtype, name,
              access_bytes(p, type->dtype), staged_element(p, arg, point));
  } else if (lane == info->unit_position) {
    const char *way = info->temporary                ? "fm_coherent"
                      : kir_has_row(p->kernel, type) ? "fm_once"
                                                     : "fm_cached";
    text_line(p, scope, "fm_load_row<%s>(%s, %s);", way, name, address(p, arg, point));
  } else {
    text_line(p, scope, "for (int e = 0; e < %u; e++) %s[e] = fm_load(fm_at(%s, e * a.%s));",
              p->vector, name, address(p, arg, point), stride_name(p, arg, (uint32_t)lane));
  }
  return (text_term){name, true, false, scope};
}

text_term text_load_argument(text_printer *p, ir_value value, const text_point *point) {
  uint32_t arg = (uint32_t)p->kernel->values[value.index].load_arg;
  int32_t lane = lane_position(p, type_of(p, value), point);
  if (lane >= 0) return load_vector(p, value, arg, point, lane);
  const char *name = fresh(p, value);
  text_line(p, text_top(p), "const float %s = fm_load%s(%s);", name,
            p->kernel->args.data[arg].temporary ? "_coherent" : "", address(p, arg, point));
  return (text_term){name, false, false, text_top(p)};
}

// ---- places -------------------------------------------------------------------------------------

// In registers narrow values stay packed as they would be in memory.
static bool is_packed(const text_printer *p, ir_value value) {
  return type_of(p, value)->dtype != IR_F32 && !kir_sweep_of(p->kernel, value.index)->single;
}

bool text_in_every_thread(const text_printer *p, ir_value value) {
  const kir_value *info = &p->kernel->values[value.index];
  return info->place == KIR_SCRATCH && info->residency == KIR_REGISTERS && !info->row;
}

bool text_store_rounds(const text_printer *p, ir_value value) {
  const kir_value *info = &p->kernel->values[value.index];
  bool place = info->place == KIR_SHARED || info->place == KIR_SCRATCH;
  return !place || (info->row && info->residency == KIR_REGISTERS && is_packed(p, value));
}

static void declare_registers(text_printer *p, uint32_t index) {
  ir_value value = {index};
  const kir_sweep *sweep = kir_sweep_of(p->kernel, index);
  const ir_type *type = type_of(p, value);
  base_text dimensions = {.arena = p->arena};
  declare_dimensions(p, &dimensions, type, sweep->loops[sweep->lane], NULL, sweep->single);
  if (is_packed(p, value))
    text_line(p, text_top(p), "fm_raw<%u> %s%s;", access_bytes(p, type->dtype),
              p->place_names[index], dimensions.data);
  else if (sweep->single)
    text_line(p, text_top(p), "float %s%s;", p->place_names[index], dimensions.data);
  else
    text_line(p, text_top(p), "float %s%s[%u]%s;", p->place_names[index], dimensions.data,
              p->kernel->team.vector, sweep->chained ? " = {}" : "");
}

static void declare_pointer(text_printer *p, uint32_t index) {
  const kir_value *value = &p->kernel->values[index];
  const kir_team *team = &p->kernel->team;
  const char *base = !value->row && value->residency == KIR_TEAM              ? "scalars"
                     : value->residency == KIR_TEAM                           ? "row_values"
                     : value->place == KIR_SHARED && team->prepared_by_launch ? "a.workspace"
                                                                              : "workspace";
  bool plain = value->offset == 0;
  text_line(p, text_top(p), "float *const %s = (float *)%s%s%s;", p->place_names[index],
            plain ? "" : "(", text_offset(p, base, value->offset), plain ? "" : ")");
}

// Pointers of all places in memory at the kernel's start; registers of prepared values too.
void text_declare_places(text_printer *p) {
  for (uint32_t i = 0; i < p->graph->nodes.count; i++) {
    if (!has_place(p, i)) continue;
    bool prepared = p->kernel->values[i].place == KIR_SHARED;
    if (p->launch && !prepared) continue;
    if (!p->place_names[i])
      p->place_names[i] = text_name(
          p, base_str_format(p->arena, "%.*s_kept", BASE_FMT(p->graph->nodes.data[i].name)));
    if (p->kernel->values[i].residency != KIR_REGISTERS)
      declare_pointer(p, i);
    else if (prepared)
      declare_registers(p, i);
  }
  for (uint32_t i = 0; i < p->kernel->chain.maxima.count && !p->launch; i++) {
    const kir_running *running = &p->kernel->chain.maxima.data[i];
    const char *place = p->place_names[running->maximum.index];
    if (!p->factor_names[i]) {
      p->factor_names[i] = joined_name(p, place, BASE_STR("factor"));
      p->before_names[i] = joined_name(p, place, BASE_STR("before"));
    }
    text_line(p, text_top(p), "float *const %s = (float *)(scalars + %zu);", p->factor_names[i],
              running->factor);
    text_line(p, text_top(p), "float *const %s = (float *)(scalars + %zu);", p->before_names[i],
              running->last);
  }
}

void text_declare_row_registers(text_printer *p) {
  for (uint32_t i = 0; i < p->graph->nodes.count; i++) {
    const kir_value *value = &p->kernel->values[i];
    bool kept = value->place == KIR_SCRATCH && value->residency == KIR_REGISTERS;
    if (kept && value->row) declare_registers(p, i); // a scalar begins where it is worked out
  }
}

static const char *place_index(text_printer *p, ir_value value, const text_point *point) {
  const kir_value *info = &p->kernel->values[value.index];
  base_text sum = {.arena = p->arena};
  int64_t step = 1;
  const char *terms[KIR_MAX_LOOPS];
  for (uint32_t i = info->rank; i-- > 0;) {
    const char *index = point->index[info->order[i].index].text;
    terms[i] = step == 1 ? index : text_format(p, "%s * %lld", index, (long long)step);
    step *= p->kernel->axes[info->order[i].index].size;
  }
  for (uint32_t i = 0; i < info->rank; i++)
    base_text_printf(&sum, "%s%s", i ? " + " : "", terms[i]);
  return sum.length ? sum.data : "0";
}

// ---- running maxima -----------------------------------------------------------------------------

static size_t running_index(const text_printer *p, const kir_running *running) {
  return (size_t)(running - p->kernel->chain.maxima.data);
}

text_term text_load_factor(text_printer *p, const kir_running *running, const text_point *point) {
  const char *factor = text_format(p, "%s[%s]", p->factor_names[running_index(p, running)],
                                   place_index(p, running->maximum, point));
  return (text_term){factor, false, false, text_top(p)};
}

// exp(old - new), and new in place of old: both are what the exponentials subtract.
void text_update_running(text_printer *p, const kir_running *running, const text_point *point,
                         const char *now) {
  const char *index = place_index(p, running->maximum, point);
  const char *before = p->before_names[running_index(p, running)];
  text_line(p, text_top(p), "%s[%s] = fm_exp(%s[%s] - %s);",
            p->factor_names[running_index(p, running)], index, before, index, now);
  text_line(p, text_top(p), "%s[%s] = %s;", before, index, now);
}

// What runs from tile to tile begins as if there had been no source.
void text_begin_chain(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  for (uint32_t i = 0; i < p->graph->nodes.count; i++) {
    const ir_node *node = &p->graph->nodes.data[i];
    const kir_value *value = &kernel->values[i];
    if (ir_op_get(node->op)->shape != IR_SHAPE_REDUCE || value->place != KIR_SCRATCH ||
        value->row ||
        !(ir_axes_set(node->over_count, node->over) & ir_axis_bit(kernel->chain.axis)))
      continue;
    int64_t count = 1;
    for (uint32_t j = 0; j < value->rank; j++)
      count *= kernel->axes[value->order[j].index].size;
    text_line(p, text_top(p), "for (int i = lane; i < %lld; i += %u) %s[i] = %s;", (long long)count,
              text_group(p), p->place_names[i], text_neutral(node->op));
    for (uint32_t j = 0; j < kernel->chain.maxima.count; j++)
      if (kernel->chain.maxima.data[j].maximum.index == i)
        text_line(p, text_top(p), "for (int i = lane; i < %lld; i += %u) %s[i] = %s;",
                  (long long)count, text_group(p), p->before_names[j], text_neutral(IR_REDUCE_MAX));
  }
}

// Do the point's elements lie side by side in the place?
static bool lies_along(const text_printer *p, const kir_value *info, const text_point *point) {
  return p->vector > 1 && info->rank > 0 &&
         (point->lanes & ir_axis_bit(info->order[info->rank - 1])) != 0;
}

static bool meets_lanes(const text_printer *p, ir_value value, const text_point *point) {
  return p->vector > 1 && (point->lanes & ir_type_axes(type_of(p, value))) != 0;
}

// Elements between neighbours along the lanes, of a place that has them elsewhere than innermost.
static int64_t lane_step(const text_printer *p, const kir_value *info, const text_point *point) {
  int64_t step = 1;
  for (uint32_t i = info->rank; i-- > 0;) {
    if (point->lanes & ir_axis_bit(info->order[i])) return step;
    step *= p->kernel->axes[info->order[i].index].size;
  }
  return 0;
}

static const char *register_element(text_printer *p, ir_value value, const text_point *point) {
  const kir_sweep *sweep = kir_sweep_of(p->kernel, value.index);
  return held_element(p, p->place_names[value.index], type_of(p, value), sweep->loops[sweep->lane],
                      NULL, point);
}

static text_term load_registers(text_printer *p, ir_value value, const text_point *point) {
  if (text_in_every_thread(p, value))
    return (text_term){p->place_names[value.index], false, false, p->row_scope};
  const char *element = register_element(p, value, point);
  uint32_t scope = text_top(p);
  if (!is_packed(p, value))
    return (text_term){element, !kir_sweep_of(p->kernel, value.index)->single, false, scope};
  const char *name = fresh(p, value);
  text_line(p, scope, "float %s[%u];", name, p->vector);
  unpack_registers(p, value, name, element);
  return (text_term){name, true, false, scope};
}

text_term text_load_place(text_printer *p, ir_value value, const text_point *point) {
  const kir_value *info = &p->kernel->values[value.index];
  if (info->residency == KIR_REGISTERS) return load_registers(p, value, point);
  const char *name = fresh(p, value), *place = p->place_names[value.index];
  const char *index = place_index(p, value, point);
  uint32_t scope = text_top(p);
  bool team = info->residency == KIR_TEAM;
  if (!meets_lanes(p, value, point)) {
    text_line(p, scope,
              team ? "const float %s = %s[%s];" : "const float %s = fm_load_coherent(%s + %s);",
              name, place, index);
    return (text_term){name, false, false, scope};
  }
  text_line(p, scope, "float %s[%u];", name, p->vector);
  if (!lies_along(p, info, point)) {
    const char *element =
        text_format(p, "%s + e * %lld", index, (long long)lane_step(p, info, point));
    text_line(p, scope,
              team ? "for (int e = 0; e < %u; e++) %s[e] = %s[%s];"
                   : "for (int e = 0; e < %u; e++) %s[e] = fm_load_coherent(%s + %s);",
              p->vector, name, place, element);
  } else if (team) {
    text_line(p, scope, "fm_shared_load(%s, %s + %s);", name, place, index);
  } else {
    text_line(p, scope, "fm_load_row<fm_coherent>(%s, %s + %s);", name, place, index);
  }
  return (text_term){name, true, false, scope};
}

// ---- storing ------------------------------------------------------------------------------------

// A vector that exists outside the element loop.
static const char *as_array(text_printer *p, text_term term) {
  if (term.vector && !term.local) return term.text;
  if (p->local == term.text) return p->array; // stored twice
  const char *name = text_name(p, base_str_format(p->arena, "%s_out", term.text));
  p->local = term.text;
  p->array = name;
  text_line(p, text_top(p), "float %s[%u];", name, p->vector);
  text_element(p, "%s[e] = %s;", name, term.text);
  return name;
}

static void store_registers(text_printer *p, ir_value value, const text_point *point,
                            text_term term) {
  if (text_in_every_thread(p, value)) {
    bool name = strspn(term.text, IDENTIFIER) == strlen(term.text);
    if (!name)
      text_line(p, p->row_scope, "const float %s = %s;", p->place_names[value.index], term.text);
    else
      p->place_names[value.index] = term.text;
    return;
  }
  const char *element = register_element(p, value, point);
  if (kir_sweep_of(p->kernel, value.index)->single)
    text_after(p, "%s = %s;", element, term.text);
  else if (is_packed(p, value))
    text_after(p, "%s = fm_pack<%s>(%s);", element, text_type(type_of(p, value)->dtype),
               as_array(p, term));
  else
    text_element(p, "%s[e] = %s%s;", element, term.text, term.vector && !term.local ? "[e]" : "");
}

void text_store_place(text_printer *p, ir_value value, const text_point *point, text_term term) {
  const kir_value *info = &p->kernel->values[value.index];
  if (info->residency == KIR_REGISTERS) {
    store_registers(p, value, point, term);
    return;
  }
  const char *place = p->place_names[value.index], *index = place_index(p, value, point);
  bool team = info->residency == KIR_TEAM;
  if (!meets_lanes(p, value, point))
    text_after(p, team ? "%s[%s] = %s;" : "fm_store_kept(%s + %s, %s);", place, index, term.text);
  else if (!lies_along(p, info, point))
    text_after(p,
               team ? "for (int e = 0; e < %u; e++) %s[%s + e * %lld] = %s[e];"
                    : "for (int e = 0; e < %u; e++) fm_store_kept(%s + %s + e * %lld, %s[e]);",
               p->vector, place, index, (long long)lane_step(p, info, point), as_array(p, term));
  else if (team)
    text_after(p, "fm_shared_store(%s + %s, %s);", place, index, as_array(p, term));
  else
    text_after(p, "fm_store_row<true>(%s + %s, %s);", place, index, as_array(p, term));
}

// Has the value just been packed for a place in registers, as one access of memory?
static bool is_packed_here(const text_printer *p, ir_value value) {
  const kir_value *info = &p->kernel->values[value.index];
  return info->place == KIR_SCRATCH && info->residency == KIR_REGISTERS && info->row &&
         is_packed(p, value) && access_bytes(p, type_of(p, value)->dtype) <= LARGEST_ACCESS;
}

void text_store_argument(text_printer *p, ir_value value, const text_point *point, text_term term) {
  uint32_t arg = (uint32_t)p->kernel->values[value.index].store_arg;
  const kir_arg *info = &p->kernel->args.data[arg];
  const ir_type *type = type_of(p, value);
  int32_t lane = lane_position(p, type, point);
  const char *kept = info->temporary ? "true" : "false";
  if (lane < 0)
    text_after(p, "fm_store%s(%s, %s);", info->temporary ? "_kept" : "", address(p, arg, point),
               term.text);
  else if (lane != info->unit_position)
    text_after(p, "for (int e = 0; e < %u; e++) fm_store(fm_at(%s, e * a.%s), %s[e]);", p->vector,
               address(p, arg, point), stride_name(p, arg, (uint32_t)lane), as_array(p, term));
  else if (is_packed_here(p, value))
    text_after(p, "fm_store_access<%s>(%s, %s);", kept, address(p, arg, point),
               register_element(p, value, point));
  else
    text_after(p, "fm_store_row<%s>(%s, %s);", kept, address(p, arg, point), as_array(p, term));
}
