// cubin_writer: see cubin_writer.h. Sections are appended one by one, each behind the last; the
// table of sections is the end of the file.
#include "double/cubin_writer.h"

#include <elf.h>
#include <string.h>

enum {
  MACHINE_CUDA = 190,
  OSABI_CUDA_13 = 0x41,
  SYMBOL_ENTRY = 0x10, // in st_other: a kernel
  INFO_SIZED = 4,
  INFO_MAX_THREADS = 0x05,
  INFO_REGISTERS = 0x2f,
};

typedef struct writer {
  base_arena *arena;
  base_text file, names; // names of sections
  BASE_VECTOR(Elf64_Shdr) sections;
} writer;

static void align(writer *w) {
  static const char padding[8] = "";
  base_text_append(&w->file, padding, -w->file.length % sizeof padding);
}

// The index of the new section.
static uint32_t add_section(writer *w, base_str name, uint32_t type, uint32_t link,
                            base_str bytes) {
  align(w);
  base_push(w->arena, &w->sections,
            (Elf64_Shdr){.sh_name = (Elf64_Word)w->names.length,
                         .sh_type = type,
                         .sh_link = link,
                         .sh_offset = w->file.length,
                         .sh_size = bytes.length});
  base_text_append(&w->names, name.data, name.length);
  base_text_append(&w->names, "", 1);
  base_text_append(&w->file, bytes.data, bytes.length);
  return w->sections.count - 1;
}

static base_str bytes_of(base_arena *arena, const void *data, size_t length) {
  return base_str_copy(arena, (base_str){data, length});
}

// ---- what a kernel has --------------------------------------------------------------------------

static void add_symbols(writer *w, const cubin_kernel *kernels, uint32_t count) {
  base_text names = {.arena = w->arena}, symbols = {.arena = w->arena};
  const Elf64_Sym none = {0};
  base_text_append(&names, "", 1);
  base_text_append(&symbols, (const char *)&none, sizeof none);
  for (uint32_t i = 0; i < count; i++) {
    const Elf64_Sym symbol = {.st_name = (Elf64_Word)names.length,
                              .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                              .st_other = SYMBOL_ENTRY};
    base_text_append(&names, kernels[i].name.data, kernels[i].name.length);
    base_text_append(&names, "", 1);
    base_text_append(&symbols, (const char *)&symbol, sizeof symbol);
  }
  const uint32_t strings =
      add_section(w, BASE_STR(".strtab"), SHT_STRTAB, 0, base_text_str(&names));
  add_section(w, BASE_STR(".symtab"), SHT_SYMTAB, strings, base_text_str(&symbols));
}

// Attributes: a format, a kind, the number of bytes, which are words here.
static void add_info(writer *w, const cubin_kernel *kernels, uint32_t count) {
  base_text common = {.arena = w->arena};
  for (uint32_t i = 0; i < count; i++) {
    const cubin_kernel *k = &kernels[i];
    const uint32_t registers[] = {INFO_SIZED | INFO_REGISTERS << 8 | 8 << 16, i + 1, k->registers};
    const uint32_t bounds[] = {INFO_SIZED | INFO_MAX_THREADS << 8 | 12 << 16, k->max_threads, 1, 1};
    base_text_append(&common, (const char *)registers, sizeof registers);
    if (k->max_threads)
      add_section(w, base_str_format(w->arena, ".nv.info.%.*s", BASE_FMT(k->name)), SHT_LOPROC, 0,
                  bytes_of(w->arena, bounds, sizeof bounds));
  }
  add_section(w, BASE_STR(".nv.info"), SHT_LOPROC, 0, base_text_str(&common));
}

// ---- the file -----------------------------------------------------------------------------------

base_str cubin_write(base_arena *arena, int arch, const cubin_kernel *kernels, uint32_t count,
                     base_str text) {
  Elf64_Ehdr header = {
      .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT,
                  OSABI_CUDA_13},
      .e_type = ET_EXEC,
      .e_machine = MACHINE_CUDA,
      .e_flags = (Elf64_Word)arch << 8,
      .e_ehsize = sizeof header,
      .e_shentsize = sizeof(Elf64_Shdr),
  };
  writer w = {.arena = arena, .file = {.arena = arena}, .names = {.arena = arena}};
  base_text_append(&w.file, (const char *)&header, sizeof header);
  add_section(&w, BASE_STR(""), SHT_NULL, 0, BASE_STR(""));
  add_symbols(&w, kernels, count);
  add_info(&w, kernels, count);
  for (uint32_t i = 0; i < count; i++)
    add_section(&w, base_str_format(arena, ".text.%.*s", BASE_FMT(kernels[i].name)), SHT_PROGBITS,
                0, BASE_STR("no code"));
  if (text.length) // terminated
    add_section(&w, BASE_STR(DOUBLE_TEXT_SECTION), SHT_PROGBITS, 0,
                base_str_format(arena, "%.*s%c", BASE_FMT(text), 0));
  // The names last: they have the name of their own section.
  const uint32_t names = add_section(&w, BASE_STR(".shstrtab"), SHT_STRTAB, 0, BASE_STR(""));
  w.sections.data[names].sh_size = w.names.length;
  base_text_append(&w.file, w.names.data, w.names.length);

  align(&w);
  header.e_shoff = w.file.length;
  header.e_shnum = (Elf64_Half)w.sections.count;
  header.e_shstrndx = (Elf64_Half)names;
  base_text_append(&w.file, (const char *)w.sections.data, w.sections.count * sizeof(Elf64_Shdr));
  memcpy(w.file.data, &header, sizeof header);
  return base_text_str(&w.file);
}
