"""Runs a command in a terminal and does to it what a plan says, step by step.

Steps: size COLUMNS ROWS, see TEXT, key KEYS, term, hang, end CODE (or any). Every wait has a deadline.
"""
import fcntl, os, pty, select, signal, struct, sys, termios, time

PATIENCE = 20.0
plan, command = sys.argv[1], sys.argv[2:]
master, slave = pty.openpty()
before = termios.tcgetattr(slave)
seen = b""


def resize(columns, rows):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


resize(80, 24)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for stream in (0, 1, 2):
        os.dup2(slave, stream)
    os.closerange(3, 64)
    os.execvp(command[0], command)


def read(patience):
    global seen
    if select.select([master], [], [], patience)[0]:
        try:
            seen += os.read(master, 65536)
        except OSError:
            return


def see(text):
    global seen
    until = time.monotonic() + PATIENCE
    while text not in seen:
        if time.monotonic() > until:
            sys.exit(f"waited in vain for {text!r}; there was {seen[-2000:]!r}")
        read(0.1)


def end(code):
    until = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            sys.exit(f"it does not end; there was {seen[-2000:]!r}")
        read(0.05)
    print("ended", status)
    if code == "any":
        return
    read(0.2)
    if os.waitstatus_to_exitcode(status) != int(code):
        sys.exit(f"ended with {status}, not {code}; there was {seen[-2000:]!r}")
    if b"\x1b[?1049h" not in seen or not seen.rstrip().endswith(b"\x1b[?1049l"):
        sys.exit(f"the screen was not given back: {seen[-200:]!r}")
    if termios.tcgetattr(slave) != before:
        sys.exit("the terminal was not given back as it was")
    print("restored")


for step in plan.split(";"):
    verb, _, rest = step.partition(" ")
    if verb == "size":
        seen = seen[-64:] if b"\x1b[?1049h" in seen else seen
        resize(*map(int, rest.split()))
        # What stood there before does not count.
        seen = b"\x1b[?1049h"
        os.kill(child, signal.SIGWINCH)
    elif verb == "see":
        see(rest.encode())
    elif verb == "key":
        os.write(master, rest.encode())
    elif verb == "term":
        os.kill(child, signal.SIGTERM)
    elif verb == "hang":
        os.close(slave)
        os.close(master)
        master = os.open("/dev/null", os.O_RDONLY)
    elif verb == "end":
        end(rest)
