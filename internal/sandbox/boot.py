def boot():
    import sys, posix, _thread
    posix.write(4, b"B")
    chunks = []
    while True:
        chunk = posix.read(5, 1 << 20)
        if not chunk:
            break
        chunks.append(chunk)
    posix.close(5)
    source = b"".join(chunks)
    _thread.stack_size(8 << 20)
    sys.argv[:] = ["solution.py"]
    sys.path[:] = [p for p in sys.path if p and not p.endswith("-packages")]
    def show(error):
        try:
            import linecache, traceback
            text = source.decode("utf-8", "replace")
            linecache.cache["solution.py"] = (len(text), None, text.splitlines(True), "solution.py")
            traceback.print_exception(type(error), error, error.__traceback__)
        except BaseException:
            sys.__excepthook__(type(error), error, error.__traceback__)
    try:
        code = compile(source, "solution.py", "exec", 0, True)
    except BaseException as error:
        posix.write(4, b"C")
        posix.close(4)
        error.__traceback__ = None
        show(error)
        sys.exit(1)
    main = sys.modules["__main__"].__dict__
    del main["boot"]
    main["__file__"] = "solution.py"
    def run():
        try:
            exec(code, main)
        except SystemExit:
            raise
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            if sys.excepthook is sys.__excepthook__:
                show(error)
            else:
                sys.excepthook(type(error), error, error.__traceback__)
        else:
            return
        sys.exit(1)
    posix.write(4, b"R")
    posix.close(4)
    return run
boot()()
