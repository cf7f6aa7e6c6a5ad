#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one process of a sync at a random moment, again and again: kill_ranks.py [--seed N] [--runs N] [--modes A,B] [--late S]

Modes: packed, sliced and delta (one or two senders, two receivers that write files), served (the same into memory that
`loadplan serve` holds), cold (four ranks that share the reading). Whenever it is: the others end, with 0 or 4; who fails
says who is gone; a rank file is that of one epoch to the byte, no older than what its rank has reported; a receiver that
comes in the place of the one that was killed is brought up; served memory is given away only where it is whole, and a
later epoch makes it right. Prints one line a mode. LOADPLAN: the program ("loadplan"). Nothing here depends on when a
kill comes; how often it came within an epoch is told.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TOOL = os.environ.get("LOADPLAN", "loadplan")
PATIENCE_S = 240
EPOCHS = 12
LATE_S = 8  # how long ranks wait for one that has been killed before it came
GONE = re.compile(r"is gone|have ended|cannot reach|nobody serves|did not come")


class Wrong(Exception):
    pass


def free_port():
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Process:
    """A rank, its words in a file."""

    def __init__(self, name, *arguments, feed=None, **environment):
        self.name, self.log = name, pathlib.Path(f"{name}.log")
        self.log.unlink(missing_ok=True)
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [TOOL, *map(str, arguments)], stdin=subprocess.PIPE if feed else subprocess.DEVNULL, stdout=out,
                stderr=out, env=os.environ | environment)
        if feed:
            try:
                self.process.stdin.write("".join(f"{x}\n" for x in feed).encode())
                self.process.stdin.close()
            except BrokenPipeError:
                pass

    def kill(self):
        """Whether it had not ended before."""
        was_running = self.process.poll() is None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return was_running

    def end(self):
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Wrong(f"{self.name} does not end: {self.words()}") from None

    def words(self):
        return self.log.read_text(errors="replace")

    def epochs(self):
        return [int(x) for x in re.findall(r"epoch (\d+), ", self.words())]


def tool(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(map(str, arguments))}: {done.stderr}")


def rank_file(folder, rank):
    return pathlib.Path(folder) / f"rank-{rank:05d}.safetensors"


class Worlds:
    """Three checkpoints, and what ranks hold of each."""

    def __init__(self):
        subprocess.run([sys.executable, HERE.parent / "replay" / "make_dense.py", "ck0"], check=True)
        for i in (1, 2):
            subprocess.run([sys.executable, HERE / "change.py", f"ck{i - 1}", f"ck{i}", str(i + 4)], check=True)
        self.want = {}
        for tp in (2, 4):
            tool("record", "--checkpoint", "ck0", "--loader", "dense", "--tp", tp, "--rank", "all", "-q", "-o", f"tp{tp}.lpt")
            for i in range(3):
                for rank in range(tp):
                    tool("replay", f"tp{tp}.lpt", "--checkpoint", f"ck{i}", "--rank", rank, "-q", "-o", f"want{tp}-{i}")
                    self.want[tp, i, rank] = rank_file(f"want{tp}-{i}", rank).read_bytes()

    def epoch_of(self, tp, rank, folder, feed):
        """The epochs whose bytes the rank file has; None: there is none."""
        path = rank_file(folder, rank)
        if not path.exists():
            return None
        data = path.read_bytes()
        found = [e for e, i in enumerate(feed, 1) if data == self.want[tp, i, rank]]
        if not found:
            raise Wrong(f"{path} is that of no epoch")
        return found


def check_end(processes, victim):
    """Everybody but the victim ends well, or knows why not. Whether somebody failed."""
    has_failed = False
    for p in processes:
        if p is victim:
            continue
        code = p.end()
        if code not in (0, 4):
            raise Wrong(f"{p.name} ends with {code}: {p.words()}")
        if code == 4 and not GONE.search(p.words()):
            raise Wrong(f"{p.name} does not say who is gone: {p.words()}")
        has_failed = has_failed or code == 4
    return has_failed


class Sync:
    """Senders of EPOCHS folders, and two receivers."""

    def __init__(self, rng, mode, targets):
        self.port, self.senders, self.mode, self.targets = free_port(), rng.choice((1, 2)), mode, targets
        self.bucket = rng.choice((256, 1024, 4096, 65536))
        self.feed = [rng.randrange(3) for _ in range(EPOCHS)]
        self.receivers = [self.receiver(rank) for rank in (0, 1)]
        self.sending = [
            Process(f"send{rank}", "send", "tp2.lpt", "--from", "-", "--mode", mode, "--bucket", self.bucket, "--rank", rank,
                    "--of", self.senders, *self.where(), feed=[f"ck{i}" for i in self.feed])
            for rank in reversed(range(self.senders))]

    def where(self):
        return ("--rendezvous", f"127.0.0.1:{self.port}", "--join-timeout", LATE_S, "--stall-timeout", 60)

    def receiver(self, rank, name="recv"):
        return Process(f"{name}{rank}", "recv", "tp2.lpt", "--into", self.targets[rank], "--rank", rank, "--of", 2,
                       "--epochs", 0, *self.where())

    def all(self):
        return self.receivers + self.sending


def run_files(worlds, rng, mode, moment):
    """Whether the kill came within an epoch."""
    for rank in (0, 1):
        rank_file("got", rank).unlink(missing_ok=True)
    s = Sync(rng, mode, ("got", "got"))
    processes = s.all()
    time.sleep(moment)
    victim = rng.choice(processes)
    was_running = victim.kill()
    if was_running and victim in s.receivers:
        processes.append(s.receiver(s.receivers.index(victim), "again"))
    has_failed = check_end(processes, victim)
    said = [p.epochs() for p in processes]
    last = max((e for x in said for e in x), default=0)
    for rank in (0, 1):
        own = [e for p in processes if p.name in (f"recv{rank}", f"again{rank}") for e in p.epochs()]
        epochs = worlds.epoch_of(2, rank, "got", s.feed)
        if epochs is None and own:
            raise Wrong(f"rank {rank} has reported epoch {max(own)}, and there is no file")
        if epochs is not None and not any(max(own, default=1) <= e <= last + 1 for e in epochs):
            raise Wrong(f"rank {rank} has reported {own}, and its file is of {epochs}")
    if not has_failed and victim not in s.sending and last != EPOCHS:
        raise Wrong(f"everybody ends well after epoch {last} of {EPOCHS}")
    return was_running and has_failed


def bring_up(worlds, sockets):
    """A new trainer and new receivers make the served ranks right, whatever was left there."""
    port = free_port()
    where = ("--rendezvous", f"127.0.0.1:{port}", "--join-timeout", PATIENCE_S // 2)
    ranks = [Process(f"up{r}", "recv", "tp2.lpt", "--into", sockets[r], "--rank", r, "--of", 2, *where) for r in (0, 1)]
    ranks.append(Process("up", "send", "tp2.lpt", "--from", "ck2", *where))
    for p in ranks:
        if p.end() != 0:
            raise Wrong(f"{p.name}: {p.words()}")


def read_back(sockets, folder, late_s):
    """What the served ranks hold, as rank files; whether it was given away. late_s: where it is not, others wait so long."""
    port = free_port()
    where = ("--rendezvous", f"127.0.0.1:{port}", "--join-timeout", late_s)
    ranks = [Process(f"back{r}", "recv", "tp2.lpt", "--into", folder, "--rank", r, "--of", 2, *where) for r in (0, 1)]
    ranks += [Process(f"out{r}", "send", "tp2.lpt", "--from", sockets[r], "--mode", "sliced", "--rank", r, "--of", 2, *where)
              for r in (1, 0)]
    codes = []
    for p in ranks:
        codes.append(p.end())
    return all(code == 0 for code in codes)


def run_served(worlds, rng, _, moment):
    sockets = [f"ipc:s{r}" for r in (0, 1)]
    serving = [Process(f"serve{r}", "serve", "tp2.lpt", "--checkpoint", "ck0", "--rank", r, "--socket", f"s{r}")
               for r in (0, 1)]
    try:
        until = time.monotonic() + PATIENCE_S
        while not all("serve: rank" in p.words() for p in serving):
            if time.monotonic() > until:
                raise Wrong(f"no server: {serving[0].words()}{serving[1].words()}")
            time.sleep(0.01)
        s = Sync(rng, rng.choice(("packed", "sliced", "delta")), sockets)
        time.sleep(moment)
        victim = rng.choice(s.all() + serving)
        was_running = victim.kill()
        if was_running and victim in s.receivers:
            s.receivers.append(s.receiver(s.receivers.index(victim), "again"))
        has_failed = check_end(s.all(), victim)
        if victim in serving:
            return has_failed
        for rank in (0, 1):
            rank_file("back", rank).unlink(missing_ok=True)
        if read_back(sockets, "back", LATE_S):
            found = [worlds.epoch_of(2, rank, "back", [0, 1, 2]) for rank in (0, 1)]
            last = max((e for p in s.receivers for e in p.epochs()), default=0)
            if not has_failed and s.feed[last - 1] + 1 not in found[0]:
                raise Wrong(f"epoch {last} was ck{s.feed[last - 1]}, and the server holds {found}")
        bring_up(worlds, sockets)
        if not read_back(sockets, "back", PATIENCE_S // 2):
            raise Wrong("what was brought up is not given away")
        for rank in (0, 1):
            if worlds.epoch_of(2, rank, "back", [0, 1, 2]) != [3]:
                raise Wrong("what was brought up is not what was sent")
        return was_running and has_failed
    finally:
        for p in serving:
            if p.process.poll() is None:
                p.kill()


def run_cold(worlds, rng, _, moment):
    for rank in range(4):
        rank_file("cold", rank).unlink(missing_ok=True)
    port = free_port()
    processes = [Process(f"cold{rank}", "replay", "tp4.lpt", "--world", "--checkpoint", "ck1", "-o", "cold", "--rendezvous",
                         f"127.0.0.1:{port}", "--join-timeout", LATE_S, RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank))
                 for rank in range(4)]
    time.sleep(moment)
    victim = rng.choice(processes)
    was_running = victim.kill()
    has_failed = check_end(processes, victim)
    for rank, p in enumerate(processes):
        epochs = worlds.epoch_of(4, rank, "cold", [1])
        if p is not victim and p.process.returncode == 0 and epochs is None:
            raise Wrong(f"rank {rank} ends well, without a file")
    return was_running and has_failed


RUN = {"packed": run_files, "sliced": run_files, "delta": run_files, "served": run_served, "cold": run_cold}
MOST_S = {"packed": 0.5, "sliced": 0.5, "delta": 0.5, "served": 0.5, "cold": 0.12}


def main():
    global LATE_S
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--modes", default=",".join(RUN))
    parser.add_argument("--late", type=int, default=LATE_S)
    o = parser.parse_args()
    LATE_S = o.late
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        worlds = Worlds()
        for mode in o.modes.split(","):
            within, failures = 0, []
            for n in range(o.runs):
                rng = random.Random(f"{o.seed} {mode} {n}")
                try:
                    within += RUN[mode](worlds, rng, mode, rng.uniform(0, MOST_S[mode]))
                except Wrong as e:
                    failures.append(f"    run {n}: {e}")
            print(f"{mode}: seed {o.seed}, {o.runs} killed, {within} of them within an epoch, {len(failures)} wrong", flush=True)
            print("\n".join(failures), file=sys.stderr) if failures else None
            wrong += len(failures)
        os.chdir("/")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
