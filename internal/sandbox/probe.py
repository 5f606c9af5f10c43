import glob, importlib, json, os, sys, sysconfig
# Loads every extension module of the standard library, so that the memory map names each library it needs.
std, plat = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
for path in sorted(glob.glob(os.path.join(plat, "lib-dynload", "*.so"))):
    name = os.path.basename(path).split(".")[0]
    if name.startswith(("_test", "xx", "_xx", "_tkinter", "_curses", "readline", "nis", "ossaudiodev")):
        continue
    try:
        importlib.import_module(name)
    except BaseException:
        pass
libraries = set()
with open("/proc/self/maps") as maps:
    for line in maps:
        path = line.split(None, 5)[5].strip() if len(line.split(None, 5)) == 6 else ""
        if path.startswith("/") and not path.endswith("(deleted)"):
            libraries.add(path)
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "implementation": sys.implementation.name,
    "executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "stdlib": sorted({std, plat}),
    "libraries": sorted(libraries),
}))
