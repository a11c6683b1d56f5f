// Objects to code that lies anywhere (runtime/host_code.h): a linker for the little that kernels need.
//
// A kernel's object has code and constants, reaches the one from the other relative to where it is,
// and calls nothing. So its sections are laid out one behind the other and the distances are filled
// in, once and for all. ORC's linkers could do that too, at two addresses whose results are compared;
// here, what would not be relative, or is not in the object, is refused by its name. And no second
// process's LLVM is needed to link again.
#include <elf.h>
#include <string.h>

#include "codegen/llvm/cpu.h"

static const base_loc nowhere;

enum { CODE_ALIGNMENT = 64, LARGEST = 1 << 28 }; // an image is mapped at a page

typedef struct linker {
  base_arena *arena;
  base_str object;
  const Elf64_Shdr *sections;
  uint32_t section_count;
  const Elf64_Sym *symbols;
  uint32_t symbol_count;
  base_str names;   // of symbols
  uint64_t *places; // of sections in the image; NOT_PLACED
  char *image;
  size_t length;
  base_diag *diag;
} linker;

#define NOT_PLACED UINT64_MAX

static bool fail(linker *l, const char *what, const char *name) {
  base_error_status(l->diag, BASE_INTERNAL, nowhere,
                    "compiled code cannot be put into a bundle: %s%s%s", what, name[0] ? " " : "",
                    name);
  base_hint(l->diag, "please report this, with the file");
  return false;
}

// ---- the object ---------------------------------------------------------------------------------

// LLVM made it in this process, or it comes from the cache, whose digest was compared: so it is
// sound, and what is asked here is whether it is of the kind that is understood.
static bool within(const linker *l, uint64_t offset, uint64_t bytes) {
  return offset <= l->object.length && bytes <= l->object.length - offset;
}

static const void *contents(const linker *l, const Elf64_Shdr *section) {
  return within(l, section->sh_offset, section->sh_size) ? l->object.data + section->sh_offset
                                                         : NULL;
}

static bool find_symbols(linker *l) {
  for (uint32_t i = 0; i < l->section_count; i++) {
    const Elf64_Shdr *section = &l->sections[i];
    if (section->sh_type != SHT_SYMTAB || section->sh_link >= l->section_count) continue;
    const Elf64_Shdr *names = &l->sections[section->sh_link];
    l->symbols = contents(l, section);
    l->symbol_count = (uint32_t)(section->sh_size / sizeof *l->symbols);
    l->names = (base_str){contents(l, names), names->sh_size};
    return l->symbols != NULL && l->names.data != NULL && l->names.length > 0 &&
           l->names.data[l->names.length - 1] == 0;
  }
  return false;
}

static bool open_object(linker *l) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)l->object.data;
  if (l->object.length < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64 ||
      header->e_type != ET_REL ||
      !within(l, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)))
    return fail(l, "it is no object of x86-64", "");
  l->sections = (const Elf64_Shdr *)(l->object.data + header->e_shoff);
  l->section_count = header->e_shnum;
  return find_symbols(l) || fail(l, "it has no symbols", "");
}

static const char *name_of(const linker *l, const Elf64_Sym *symbol) {
  return symbol->st_name < l->names.length ? l->names.data + symbol->st_name : "";
}

// ---- laying out ---------------------------------------------------------------------------------

// Tables for unwinding the stack are left out: nothing in here throws.
static bool is_laid_out(const Elf64_Shdr *section) {
  return (section->sh_flags & SHF_ALLOC) != 0 && section->sh_size > 0 &&
         (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS) &&
         (section->sh_flags & (SHF_ALLOC | SHF_EXECINSTR)) != 0;
}

static bool lay_out(linker *l) {
  l->places = base_new_array(l->arena, uint64_t, l->section_count);
  uint64_t end = 0;
  for (uint32_t i = 0; i < l->section_count; i++) {
    const Elf64_Shdr *section = &l->sections[i];
    l->places[i] = NOT_PLACED;
    if (!is_laid_out(section)) continue;
    if ((section->sh_flags & (SHF_WRITE | SHF_TLS)) != 0)
      return fail(l, "it has data that changes", "");
    uint64_t alignment = section->sh_addralign > 0 ? section->sh_addralign : 1;
    if (alignment > 4096 || section->sh_size > LARGEST) return fail(l, "it is too large", "");
    l->places[i] = (end + alignment - 1) / alignment * alignment;
    end = l->places[i] + section->sh_size;
    if (end > LARGEST) return fail(l, "it is too large", "");
  }
  l->length = (size_t)end;
  l->image = base_alloc(l->arena, l->length + 1);
  for (uint32_t i = 0; i < l->section_count; i++) {
    const Elf64_Shdr *section = &l->sections[i];
    if (l->places[i] == NOT_PLACED || section->sh_type == SHT_NOBITS) continue;
    const void *bytes = contents(l, section);
    if (bytes == NULL) return fail(l, "it was cut off", "");
    memcpy(l->image + l->places[i], bytes, section->sh_size);
  }
  return true;
}

// Where a symbol is in the image.
static bool place_of(linker *l, const Elf64_Sym *symbol, uint64_t *place) {
  if (symbol->st_shndx == SHN_UNDEF) return fail(l, "it calls", name_of(l, symbol));
  if (symbol->st_shndx >= l->section_count || l->places[symbol->st_shndx] == NOT_PLACED)
    return fail(l, "it uses what is no code, at", name_of(l, symbol));
  *place = l->places[symbol->st_shndx] + symbol->st_value;
  return *place <= l->length || fail(l, "a symbol lies beyond it:", name_of(l, symbol));
}

// ---- distances ----------------------------------------------------------------------------------

static bool relocate_one(linker *l, const Elf64_Rela *entry, uint64_t section, uint64_t size) {
  uint32_t type = ELF64_R_TYPE(entry->r_info), symbol = ELF64_R_SYM(entry->r_info);
  uint32_t width = type == R_X86_64_PC64 ? 8 : 4;
  uint64_t place;
  if (symbol >= l->symbol_count || entry->r_offset > size || size - entry->r_offset < width)
    return fail(l, "it was cut off", "");
  if (type != R_X86_64_PC32 && type != R_X86_64_PLT32 && type != R_X86_64_PC64)
    return fail(l, "it depends on where it lies, at", name_of(l, &l->symbols[symbol]));
  if (!place_of(l, &l->symbols[symbol], &place)) return false;
  uint64_t from = section + entry->r_offset;
  int64_t distance = (int64_t)place + entry->r_addend - (int64_t)from; // LARGEST: fits in 32 bits
  memcpy(l->image + from, &distance, width);                           // little-endian
  return true;
}

static bool relocate(linker *l) {
  for (uint32_t i = 0; i < l->section_count; i++) {
    const Elf64_Shdr *section = &l->sections[i];
    if (section->sh_type == SHT_REL) return fail(l, "it has relocations of an old kind", "");
    if (section->sh_type != SHT_RELA || section->sh_info >= l->section_count ||
        l->places[section->sh_info] == NOT_PLACED)
      continue;
    const Elf64_Rela *entries = contents(l, section);
    if (entries == NULL) return fail(l, "it was cut off", "");
    for (uint64_t j = 0; j < section->sh_size / sizeof *entries; j++)
      if (!relocate_one(l, &entries[j], l->places[section->sh_info],
                        l->sections[section->sh_info].sh_size))
        return false;
  }
  return true;
}

// ---- entries ------------------------------------------------------------------------------------

static bool find_entry(linker *l, const char *name, uint64_t *entry) {
  *entry = RT_NO_ENTRY;
  if (name == NULL) return true;
  for (uint32_t i = 0; i < l->symbol_count; i++)
    if (l->symbols[i].st_shndx != SHN_UNDEF && strcmp(name_of(l, &l->symbols[i]), name) == 0)
      return place_of(l, &l->symbols[i], entry);
  return fail(l, "it lacks the function", name);
}

// What a processor must have to run it. Features that nothing is generated for are left out.
static const char *needed_features(base_arena *arena, const cpu_machine *machine) {
  base_text text = {.arena = arena};
  const rt_cpu unknown = {0}; // of no interest: which features are inert
  for (const char *at = machine->needs; *at; at += strspn(at, ",")) {
    base_str name = {at, strcspn(at, ",")};
    at += name.length;
    if (name.data[0] == '-') continue;
    if (name.data[0] == '+') name = (base_str){name.data + 1, name.length - 1};
    if (rt_cpu_find(&unknown, name) != RT_CPU_INERT)
      base_text_printf(&text, "%s%.*s", text.length ? "," : "", BASE_FMT(name));
  }
  return text.length ? text.data : "";
}

rt_host_image *cpu_portable(base_arena *arena, base_str object, const cpu_plan *plan,
                            const cpu_machine *machine, base_diag *diag) {
  // A copy, for its alignment.
  linker l = {.arena = arena, .object = base_str_copy(arena, object), .diag = diag};
  if (!machine->x86 || RT_HOST_ABI[0] == 0) {
    base_error_status(diag, BASE_UNSUPPORTED, nowhere, "bundles hold no code for %s yet",
                      machine->triple);
    base_hint(diag, "compile on the machine that runs it");
    return NULL;
  }
  rt_host_image *image = base_new(arena, rt_host_image);
  rt_host_entry *entries = base_new_array(arena, rt_host_entry, plan->kernel_count + 1);
  *image = (rt_host_image){.abi = RT_HOST_ABI,
                           .cpu = base_str_copy(arena, base_str_from(machine->cpu)).data,
                           .features = needed_features(arena, machine),
                           .entry_count = plan->kernel_count,
                           .entries = entries};
  if (plan->kernel_count == 0) return image;
  if (!open_object(&l) || !lay_out(&l) || !relocate(&l)) return NULL;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    if (!find_entry(&l, plan->kernels[i].body, &entries[i].body) ||
        !find_entry(&l, plan->kernels[i].prepare, &entries[i].prepare))
      return NULL;
  image->code = (base_str){l.image, l.length};
  return image;
}
