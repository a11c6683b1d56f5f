// print: a graph as text that parses back to the same graph. Types stand in one column and the head
// is filled to a fixed width, so that dumps of two passes can be compared line by line.
#include "ir/ir.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TYPE_COLUMN = 56, HEAD_COLUMN = 90, DEEPEST_INDENT = 40 };

// ---- numbers ------------------------------------------------------------------------------------

// The shortest decimal that reads back as the same f64, without the padding of C's exponents: 1e-5.
static void print_number(double number, base_text *out) {
  char digits[40];
  if (isnan(number)) {
    base_text_printf(out, "nan");
    return;
  }
  // The host's locale may write 0,5; a file means the same everywhere.
  const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  const locale_t saved = uselocale(c_locale);
  for (int precision = 1; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, number);
    if (strtod(digits, NULL) == number) break;
  }
  uselocale(saved);
  freelocale(c_locale);
  for (const char *from = digits; *from; from++) {
    base_text_append(out, from, 1);
    if (*from != 'e') continue;
    if (from[1] == '-') base_text_append(out, "-", 1);
    for (from += 2; *from == '0'; from++) {
    }
    from--;
  }
}

// ---- types --------------------------------------------------------------------------------------

static void print_name(base_str name, base_text *out) {
  base_text_append(out, name.data, name.length);
}

// `sized` has a flag for each axis whose size has been printed, or is printed elsewhere; NULL prints
// no sizes.
static void print_axes(const ir_graph *graph, uint32_t count, const ir_axis *axes, bool *sized,
                       base_text *out) {
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t index = axes[i].index;
    const ir_axis_info *axis = &graph->axes.data[index];
    if (i > 0) base_text_append(out, ", ", 2);
    print_name(axis->name, out);
    if (!sized || sized[index]) continue;
    sized[index] = true;
    if (axis->size != IR_DYNAMIC) base_text_printf(out, "=%lld", (long long)axis->size);
  }
}

static void print_type(const ir_graph *graph, const ir_type *type, bool *sized, base_text *out) {
  base_text_printf(out, "%s[", ir_dtype_name(type->dtype));
  print_axes(graph, type->rank, type->axes, sized, out);
  base_text_append(out, "]", 1);
}

void ir_print_type(const ir_graph *graph, const ir_type *type, base_text *out) {
  print_type(graph, type, NULL, out);
}

// ---- statements ---------------------------------------------------------------------------------

static void print_values(const ir_graph *graph, uint32_t count, const ir_value *values,
                         base_text *out) {
  for (uint32_t i = 0; i < count; i++) {
    base_text_append(out, i > 0 ? ", %" : " %", i > 0 ? 3 : 2);
    print_name(ir_node_of(graph, values[i])->name, out);
  }
}

static void print_clause(const ir_graph *graph, const char *keyword, uint32_t count,
                         const ir_axis *axes, bool *sized, base_text *out) {
  if (count == 0) return;
  base_text_printf(out, " %s ", keyword);
  print_axes(graph, count, axes, sized, out);
}

static void print_constant(const ir_node *node, base_text *out) {
  if (node->value_count == 1) {
    print_number(node->values[0], out);
    return;
  }
  base_text_append(out, "[", 1);
  for (uint32_t i = 0; i < node->value_count; i++) {
    if (i > 0) base_text_append(out, ", ", 2);
    print_number(node->values[i], out);
  }
  base_text_append(out, "]", 1);
}

static void open_attribute(const char *name, bool *open, base_text *out) {
  base_text_printf(out, "%s%s = ", *open ? ", " : " {", name);
  *open = true;
}

static void print_attributes(const ir_node *node, base_text *out) {
  const uint32_t takes = ir_op_get(node->op)->attributes;
  bool open = false;
  if (takes & IR_ATTR_EPS) {
    open_attribute("eps", &open, out);
    print_number(node->eps, out);
  }
  if (takes & IR_ATTR_VALUE) {
    open_attribute("value", &open, out);
    print_constant(node, out);
  }
  if (takes & IR_ATTR_START) {
    open_attribute("start", &open, out);
    base_text_printf(out, "%lld", (long long)node->start);
  }
  if (node->kernel != IR_NO_KERNEL) {
    open_attribute("kernel", &open, out);
    base_text_printf(out, "%d", node->kernel);
  }
  if (open) base_text_append(out, "}", 1);
}

// All of a statement but its type.
static void print_computation(const ir_graph *graph, const ir_node *node, bool *sized,
                              base_text *out) {
  base_text_append(out, "%", 1);
  print_name(node->name, out);
  base_text_printf(out, " = %s", ir_op_get(node->op)->keyword);
  if (node->callee.length > 0) {
    base_text_append(out, " @", 2);
    print_name(node->callee, out);
  }
  print_values(graph, node->operand_count, node->operands, out);
  print_clause(graph, "over", node->over_count, node->over, sized, out);
  print_clause(graph, "to", node->to_count, node->to, sized, out);
  print_attributes(node, out);
}

static void print_param(const ir_graph *graph, const ir_node *node, bool *sized, base_text *out) {
  base_text_append(out, "%", 1);
  print_name(node->name, out);
  base_text_append(out, ": ", 2);
  print_type(graph, &node->type, sized, out);
  if (!node->has_layout) return;
  base_text_append(out, " layout(", 8);
  print_axes(graph, node->type.rank, node->layout, NULL, out);
  base_text_append(out, ")", 1);
}

void ir_print_node(const ir_graph *graph, ir_value value, base_text *out) {
  const ir_node *node = ir_node_of(graph, value);
  if (node->op == IR_PARAM) {
    print_param(graph, node, NULL, out);
    return;
  }
  print_computation(graph, node, NULL, out);
  base_text_append(out, " : ", 3);
  print_type(graph, &node->type, NULL, out);
}

// ---- graphs -------------------------------------------------------------------------------------

// `graph @name(`, then as many parameters a line as fit, all lines starting below the first one's.
static void print_head(const ir_graph *graph, bool *sized, base_text *out) {
  size_t line_start = out->length;
  base_text_append(out, "graph @", 7);
  print_name(graph->name, out);
  base_text_append(out, "(", 1);
  const size_t head = out->length - line_start, indent = head <= DEEPEST_INDENT ? head : 4;
  for (uint32_t i = 0; i < graph->param_count; i++) {
    base_text param = {.arena = out->arena};
    print_param(graph, &graph->nodes.data[i], sized, &param);
    const size_t closing = i + 1 < graph->param_count ? 1 : 3; // "," or ") {"
    if (i > 0 && out->length - line_start + 1 + param.length + closing > HEAD_COLUMN) {
      base_text_append(out, "\n", 1);
      line_start = out->length;
      base_text_printf(out, "%*s", (int)indent, "");
    } else if (i > 0) {
      base_text_append(out, " ", 1);
    }
    base_text_append(out, param.data, param.length);
    if (i + 1 < graph->param_count) base_text_append(out, ",", 1);
  }
  base_text_append(out, ") {\n", 4);
}

// Sizes stand in types. Only an axis that no type has, such as one that single slices are put
// together over, has its size in a clause.
static bool *axes_of_types(const ir_graph *graph, base_arena *arena) {
  bool *found = base_new_array(arena, bool, graph->axes.count);
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    for (uint32_t j = 0; j < graph->nodes.data[i].type.rank; j++)
      found[graph->nodes.data[i].type.axes[j].index] = true;
  return found;
}

void ir_print(const ir_graph *graph, base_text *out) {
  bool *sized = base_new_array(out->arena, bool, graph->axes.count);
  bool *clauses_sized = axes_of_types(graph, out->arena);
  print_head(graph, sized, out);
  for (uint32_t i = graph->param_count; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    const size_t line_start = out->length;
    base_text_append(out, "  ", 2);
    print_computation(graph, node, clauses_sized, out);
    const size_t width = out->length - line_start;
    base_text_printf(out, "%*s : ", width < TYPE_COLUMN ? (int)(TYPE_COLUMN - width) : 0, "");
    print_type(graph, &node->type, sized, out);
    base_text_append(out, "\n", 1);
  }
  base_text_append(out, "  return", 8);
  print_values(graph, graph->results.count, graph->results.data, out);
  base_text_append(out, "\n}\n", 3);
}
