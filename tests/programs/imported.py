"""A process that has imported some modules, and nothing else of ours or of the tests. Each program that it is given
runs in a fork of it, and so begins as after `import torch`, say, without the seconds that this takes.

Started by tests/emit/running.py, with one end of a socket and the names of the modules as its arguments. A request is a
line of JSON, with three descriptors for the program's input, output and errors; the answers are two lines, its process
id and its wait status.
"""

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
        warnings.resetwarnings()  # which are errors, here
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
    sys.argv = ["-c", *request["arguments"]]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    return compile(request["code"], "<string>", "exec"), module.__dict__


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -c` has it, not the folder of this file
    for name in sys.argv[2:]:
        import_module(name)
    gc.freeze()  # or each fork looks at all of their objects once more as it ends
    exec(*prepare(serve(socket.socket(fileno=int(sys.argv[1])))))
