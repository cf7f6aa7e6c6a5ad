# SPDX-License-Identifier: Apache-2.0
"""on_a_terminal.py COMMAND...: runs a command whose standard error is a terminal of its own, in the foreground there, and
prints what came out there with control characters written out. Standard output goes where it went."""
import fcntl
import os
import pty
import sys
import termios

master, slave = pty.openpty()
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.dup2(slave, 2)
    os.close(master)
    os.execvp(sys.argv[1], sys.argv[1:])
os.close(slave)
seen = b""
while True:
    try:
        piece = os.read(master, 65536)
    except OSError:  # the other side is gone
        break
    if not piece:
        break
    seen += piece
_, status = os.waitpid(child, 0)
for line in seen.decode().replace("\r\n", "\n").removesuffix("\n").split("\n") if seen else []:
    print("terminal:", line.replace("\x1b", "<esc>").replace("\r", "<cr>"))
sys.exit(os.waitstatus_to_exitcode(status))
