"""A process that has imported some modules, and nothing else of ours or of the tests. Each program that it is given
runs in a fork of it, and so begins as after `import torch`, say, without the seconds that this takes.

Started by tests/emit/running.py, with one end of a socket and the names of the modules as its arguments. A request is a
line of JSON, with three descriptors for the program's input, output and errors; the answers are two lines, its process
id and its wait status.
"""

import atexit
import ctypes
import gc
import json
import os
import socket
import sys
import types
import warnings
from importlib import import_module


def serve(channel):
    """Returns in a child, with what it is to run; ends with the tests."""
    while True:
        text, files, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not text:
            os._exit(0)
        while not text.endswith(b"\n"):
            text += channel.recv(1 << 20)
        child = os.fork()
        if child == 0:
            channel.close()
            os.setpgid(0, 0)
            for wanted, file in enumerate(files):
                os.dup2(file, wanted)
                os.close(file)
            return json.loads(text)
        for file in files:
            os.close(file)
        channel.sendall(f"{child}\n".encode())
        channel.sendall(f"{os.waitpid(child, 0)[1]}\n".encode())


def prepare(request):
    os.environ.clear()
    os.environ.update(request["env"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    if not request["strict"]:
        warnings.resetwarnings()  # warnings are errors here
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
    sys.argv = ["-c", *request["arguments"]]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    return compile(request["code"], "<string>", "exec"), module.__dict__


def end_soon(names):
    """A fork does not take apart what was imported here when it ends, which takes longer than most programs run. All
    that the program itself has made, imported and loaded goes as ever, and before that all that asked for it."""
    kept = [sys.modules[name] for name in names]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    # Python begins like this, too, but empties each module that it finds there.
    atexit.register(sys.modules.update, dict.fromkeys(names))  # the last of those that follow: they run in turn
    c = ctypes.CDLL(None)
    c.on_exit(c._exit, None)  # the last in C; it is given the exit code
    c.on_exit(c._IO_flush_all, None)


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -c` has it, not the folder of this file
    before = set(sys.modules)
    for name in sys.argv[2:]:
        import_module(name)
    end_soon(sys.modules.keys() - before)
    gc.freeze()  # or each fork looks at all of their objects once more as it ends
    exec(*prepare(serve(socket.socket(fileno=int(sys.argv[1])))))
