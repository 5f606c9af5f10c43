/*
 * A stand-in for the driver library at link time: it defines the symbols that -lcuda would give, and finds the real ones when
 * steady_cuda_load is called. So a binary starts where there is no driver, and a command that needs no GPU never wakes one.
 *
 * Before a load, and for symbols that the driver lacks, every function returns CUDA_ERROR_STUB_LIBRARY (34). cuInit is the exception: it returns
 * success, because gorgonia.org/cu calls it when the program starts and exits on an error; steady_cuda_load initialises the driver.
 */
#include <dlfcn.h>
#include <stddef.h>

#define STUB_LIBRARY 34

int steady_cuda_stub(void) { return STUB_LIBRARY; }

enum {
#define ENTRY(name) index_##name,
#include "entries.h"
#undef ENTRY
    entry_count
};

static const char *const names[entry_count] = {
#define ENTRY(name) #name,
#include "entries.h"
#undef ENTRY
};

void *steady_cuda_table[entry_count] __attribute__((visibility("hidden"))) = {
#define ENTRY(name) (void *)steady_cuda_stub,
#include "entries.h"
#undef ENTRY
};

/* An entry is one jump through the table: it fits every signature. */
#if defined(__x86_64__)
#define JUMP(name) \
    __attribute__((naked)) void name(void) { __asm__("jmp *%c0+steady_cuda_table(%%rip)" : : "i"(8 * index_##name)); }
#else
#error "the stand-in is written for x86-64; add a jump through steady_cuda_table for this processor"
#endif
#define ENTRY(name) JUMP(name)
#include "entries.h"
#undef ENTRY

int cuInit(unsigned int flags) {
    (void)flags;
    return 0;
}

/*
 * steady_cuda_load opens the driver library, fills the table and initialises the driver. It returns the result of the real cuInit,
 * or 34 with *error set when the library cannot be opened. The caller lets one thread in at a time; a second call is cheap.
 */
int steady_cuda_load(const char *library, const char **error) {
    static void *handle;
    static int result;
    if (handle != NULL) return result;
    void *h = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (h == NULL) {
        *error = dlerror();
        return STUB_LIBRARY;
    }
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(h, "cuInit");
    if (init == NULL) {
        *error = "the library has no cuInit";
        dlclose(h);
        return STUB_LIBRARY;
    }
    for (int i = 0; i < entry_count; i++) {
        void *p = dlsym(h, names[i]);
        if (p != NULL) steady_cuda_table[i] = p;
    }
    handle = h;
    return result = init(0);
}
