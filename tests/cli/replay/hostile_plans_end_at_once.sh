# Plans that no loader makes: each is refused, or loaded, at once, and the error names what it is about.
plan() { # NAME LAYOUT SCOPE NAMES COUNTS ROWS...
    local name=$1 layout=$2 scope=$3 names=$4 counts=$5
    shift 5
    {
        printf 'loadplan-trace 1000\nlayout %s ep=0\n' "$layout"
        printf '%b' "$names"
        printf 'scope %s\n' "$scope"
        printf '%s\n' "$@"
        printf 'END %s\n' "$counts"
    } > "$name.txt"
    loadplan -q undump "$name.txt" -o "$name.lpt"
}
tried() { timeout 60 loadplan -q "$@" || echo "exit $?"; }
one='pp=1 dp=1 tp=1' first='pp=0 dp=0 tp=0'
# A layout of 2^31 - 1 ranks, of which the trace has the last.
plan many 'pp=1 dp=1 tp=2147483647' 'pp=0 dp=0 tp=2147483646' '' \
    'names=0 scopes=1 records=1 derives=0 refusals=0' \
    'dest "a" U8 [1] bytes=1 group="root"' 'fill begin -> "a" value=0x7 dst=0 map=0>1|1'
tried explain many.lpt | sed -n 1,3p
tried replay many.lpt --mode dummy -o out
ls out
tried explain many.lpt --rank 5
tried explain many.lpt --rank 2147483646 | sed -n 1p
# Derives in a circle.
plan circle "$one" "$first" '' 'names=0 scopes=1 records=0 derives=2 refusals=0' \
    'dest "a" F32 [1] bytes=4 group="root"' 'dest "b" F32 [1] bytes=4 group="root"' \
    'derive "a" map=4 inputs=(dest "b" F32 1 4) nodes=(input F32 1 0,0,0 0x0; neg F32 1 0,0,0 0x0)' \
    'derive "b" map=4 inputs=(dest "a" F32 1 4) nodes=(input F32 1 0,0,0 0x0; neg F32 1 0,0,0 0x0)'
tried check circle.lpt
tried explain circle.lpt
tried replay circle.lpt --mode dummy -o out
# Every second byte of 2 TiB.
plan holes "$one" "$first" 'name "s" U8 [2199023255552]\n' 'names=1 scopes=1 records=1 derives=0 refusals=0' \
    'dest "a" U8 [1099511627776] bytes=1099511627776 group="root"' \
    'copy "s" -> "a" src=0 dst=0 map=1099511627776x2:1,1'
tried check holes.lpt
tried explain holes.lpt
# 17 million waits of derives for names, and 20,000 names that all write the same bytes.
{
    printf 'loadplan-trace 1000\nlayout %s ep=0\n' "$one"
    seq -f 'name "n%05g" U8 [4]' 0 4200
    printf 'scope %s\ndest "a" F32 [4201] bytes=16804 group="root"\ndest "b" F32 [4000] bytes=16000 group="root"\n' "$first"
    seq 0 4200 | awk '{ printf "copy \"n%05d\" -> \"a\" src=0 dst=%d map=4\n", $1, 4 * $1 }'
    seq 0 3999 | awk '{ printf "derive \"b\" map=0+%d:4 inputs=(dest \"a\" F32 4201 16804) ", 4 * $1
                        print "nodes=(input F32 4201 0,0,0 0x0; max F32 1 0,0,0 0x0)" }'
    echo 'END names=4201 scopes=1 records=4201 derives=4000 refusals=0'
} > waits.txt
loadplan -q undump waits.txt -o waits.lpt
tried explain waits.lpt
{
    printf 'loadplan-trace 1000\nlayout %s ep=0\n' "$one"
    seq -f 'name "n%05g" U8 [8]' 0 19999
    printf 'scope %s\ndest "a" U8 [8] bytes=8 group="root"\n' "$first"
    seq 0 19999 | awk '{ printf "copy \"n%05d\" -> \"a\" src=0 dst=0 map=8 seq=%d\n", $1, $1 + 1 }'
    echo 'END names=20000 scopes=1 records=20000 derives=0 refusals=0'
} > order.txt
loadplan -q undump order.txt -o order.lpt
tried explain order.lpt | sed -n 2p
