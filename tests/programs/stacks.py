"""Calls a function in all the ways that Python has, and compares at each call its own frames with those that the
library of tests/native/frames/stack.cpp reads. The library is called by ctypes, which lets go of Python's lock, as
torch does before it runs an op. Prints, as JSON, how often each case was compared, and the pairs that differ.

    python stacks.py LIBRARY
"""

import asyncio
import collections
import contextlib
import ctypes
import functools
import json
import sys
import threading
import types

MOST = 256  # kDeepest of stack.h

library = ctypes.CDLL(sys.argv[1])
library.read_stack.restype = ctypes.c_size_t
library.read_stack.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
lock = threading.Lock()
compared = collections.Counter()
differ = []


def check(*_):
    buffer = ctypes.create_string_buffer(1 << 17)
    # On one line, as this frame is compared too.
    length, frame, line = library.read_stack(buffer, len(buffer)), sys._getframe(), sys._getframe().f_lineno
    expected, case = [], ""
    while frame is not None:
        code = frame.f_code
        expected.append(f"{code.co_filename}({line}): {code.co_name}")
        if code.co_name.startswith("case_"):
            case = code.co_name
        frame = frame.f_back
        line = frame and frame.f_lineno
    found, expected = buffer.raw[:length].decode().split("\n"), expected[:MOST][::-1]
    with lock:
        compared[case] += 1
        if found != expected:
            differ.append([case, found, expected])
    return 0


def case_plain():
    check()
    check(
        1,
        len(
            "a"
        ),
    )  # fmt: skip
    for _ in range(3):
        check(
        ) or check()  # fmt: skip


def case_nested():
    def outer():
        def inner():
            check()

        (lambda: inner())()

    outer()


def case_comprehension():
    return [check() for _ in range(2)], {check(): [check() for _ in range(2)]}, any(check() for _ in range(2))


def case_generator():
    def numbers():
        check()
        yield check()
        try:
            yield from others()
        except KeyError:
            check()
            yield 4
        finally:
            check()

    def others():
        for _ in range(2):
            yield check()

    list(numbers())
    made = numbers()
    for _ in range(3):
        next(made)
    made.throw(KeyError())
    made.close()
    del made


def case_coroutine():
    async def inner():
        check()
        await asyncio.sleep(0)
        check()

    async def several():
        for _ in range(2):
            yield check()
            await asyncio.sleep(0)

    async def outer():
        await asyncio.gather(inner(), inner())
        async for _ in several():
            check()
        [check() async for _ in several()]

    asyncio.run(outer())


def case_recursion():
    def down(depth):
        return down(depth - 1) if depth else check()

    for depth in (0, 50, 250, 255, 256, 300, 700):
        down(depth)


def case_recursion_through_c():
    def down(depth):
        return max([depth], key=lambda depth: down(depth - 1) if depth else check())

    down(60)


def case_called_by_c():
    sorted([3, 1, 2], key=check)
    list(map(check, [1, 2]))
    functools.reduce(check, [1, 2, 3])
    functools.lru_cache(check)(1)
    functools.partial(check, 1)()
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(check)(1)
    "".join(str(check()) for _ in range(2))


def case_methods():
    class Callable:
        def __call__(self):
            check()

        def __eq__(self, other):
            check()
            return True

        def __getattr__(self, name):
            check()
            return name

        @property
        def value(self):
            check()

        @classmethod
        def of_class(cls):
            check()

        def __enter__(self):
            check()

        def __exit__(self, *_):
            check()

        def __del__(self):
            check()

    made = Callable()
    made()
    made == 3  # noqa: B015
    made.anything, made.value, made.of_class()
    with made:
        check()
    del made


def case_many_calls():
    """Calls that Python has seen often are other instructions: it goes from an __init__ to the next without C."""

    class Net:
        def __init__(self, number):
            self.number = number
            check()

        @property
        def twice(self):
            check()
            return self.number * 2

        def __getitem__(self, index):
            check()
            return index

    def numbers():
        for _ in range(30):
            yield check()

    for number in range(300):
        net = Net(number)
        assert net.twice == net[number] * 2
    for _ in range(4):
        for _ in numbers():
            check()


def case_class_body():
    class Meta(type):
        def __new__(cls, *arguments, **more):
            check()
            return super().__new__(cls, *arguments)

        def __call__(cls, *arguments):
            check()
            return super().__call__(*arguments)

    class Base(metaclass=Meta):
        number = check()

        def __init_subclass__(cls, **more):
            check()

    class Inner(Base):
        check()

        class Innermost(Base, more=check()):
            check()

    Inner()
    type("Made", (Base,), {})()


def case_compiled_text():
    exec("check()")
    eval("check()")
    exec(compile("\n\ndef f():\n\n  return check()\nf()", "<made up>", "exec"), {"check": check})
    exec(compile("größe = lambda: check()\ngröße()", "日本.py", "exec"), {"check": check})
    long = "\n".join(f"x{number} = {number} + len('a')" for number in range(3000)) + "\ncheck()\n"
    exec(compile(long, "<long>", "exec"), {"check": check})
    exec(compile("if True:\n" + " " * 500 + "check(" + "\n" * 300 + ")", "<wide>", "exec"), {"check": check})


def case_import():
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "made_up_module":
                return None
            check()
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, Finder)

        @staticmethod
        def create_module(spec):
            check()
            return types.ModuleType(spec.name)

        @staticmethod
        def exec_module(module):
            check()

    sys.meta_path.insert(0, Finder)
    try:
        import made_up_module  # noqa: F401
    finally:
        sys.meta_path.remove(Finder)


def case_exceptions():
    @contextlib.contextmanager
    def managed():
        check()
        yield
        check()

    try:
        with managed():
            check()
        raise ValueError
    except ValueError:
        check()
    finally:
        check()


def case_watched():
    """Tracing and profiling change a code's instructions while it runs."""

    def watch(frame, event, _):
        return watch if frame.f_code.co_name != "check" else None

    for install in (sys.settrace, sys.setprofile):
        install(watch)
        try:
            case_nested()
            case_generator()
        finally:
            install(None)
        case_nested()


def in_threads(case):
    def case_in_thread():
        for _ in range(20):
            case()

    threads = [threading.Thread(target=case_in_thread) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for name, case in list(globals().items()):
    if name.startswith("case_"):
        case()
in_threads(case_nested)
in_threads(case_generator)
print(json.dumps([compared, differ]))
