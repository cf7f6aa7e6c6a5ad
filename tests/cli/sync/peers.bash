# SPDX-License-Identifier: Apache-2.0
# What the scripts of this suite share. Each meeting has a port that is free, with the one before it, and below those
# that the system hands out by itself: nobody gets it between here and the first rank.
meeting() {
    where=127.0.0.1:$("$PYTHON" -c 'import random, socket
try:
    least = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
except OSError:
    least = 32768
least = least if least > 4096 else 32768
while True:
    port = random.randrange(least - 2000, least)
    try:
        for one in (port - 1, port):
            socket.socket().bind(("127.0.0.1", one))
        break
    except OSError:
        pass
print(port)')
}

# receive TRACE RANKS FOLDER [OPTION ...]: all ranks of a server, in the background.
receive() {
    local trace=$1 ranks=$2 folder=$3 rank
    shift 3
    for ((rank = 0; rank < ranks; rank++)); do
        loadplan recv "$trace" --into "$folder" --rendezvous "$where" --rank "$rank" --of "$ranks" "$@" &
    done
}

# distribute TRACE SENDERS [OPTION ...]: all senders, the first one last; waits for everybody.
distribute() {
    local trace=$1 senders=$2 rank
    shift 2
    for ((rank = senders - 1; rank > 0; rank--)); do
        loadplan send "$trace" --rendezvous "$where" --rank "$rank" --of "$senders" "$@" &
    done
    loadplan send "$trace" --rendezvous "$where" --rank 0 --of "$senders" "$@"
    wait
}

# await PATTERN FILE: until a line of the file matches.
await() {
    local i
    for ((i = 0; i < 6000; i++)); do
        if grep -q "$1" "$2" 2>/dev/null; then
            return 0
        fi
        sleep 0.05
    done
    echo "no '$1' in $2:" >&2
    cat "$2" >&2
    return 1
}

# A checkpoint whose bytes differ from those of $1 in every third row of some tensors: other_epoch FROM TO SEED.
other_epoch() {
    "$PYTHON" "$SUITE/change.py" "$1" "$2" "$3"
}
