# What each command exits with: 0 done, 1 the answer is no, 2 usage, 3 bad data, 4 environment, 5 a stale trace (README.md).
. "$SUITE/../check/twin.bash"
write_good
weights good
twin holes '/^copy .*layers.1.experts.1.up/d; s/records=8/records=7/'
twin fallback '/^copy .*layers.0.experts.1.w2_input_scale/d
s|^END.*|refuse "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" op="max" reason="reads a value" at "loader.py":412\
END names=8 scopes=1 records=7 derives=2 refusals=1|'
mkdir stale
sed 's/"F32"/"I32"/g' good/model.safetensors >stale/model.safetensors
"$PYTHON" "$SUITE/../record/write_model.py" model
loadplan -q replay good.lpt --checkpoint good -o ranks
echo 'no trace, no text of one, and no header' >garbage
head -c 4096 good.lpt >cut.lpt
meeting="--rendezvous 127.0.0.1:1 --rank 0 --of 1 --join-timeout 1"
code() {
    local code=0
    loadplan "${@:2}" >out 2>said </dev/null || code=$?
    [ "$code" = "$1" ] || { echo "loadplan ${*:2}: exit $code, not $1"; cat said; }
    echo "${*:2} -> $code"
}
echo "--- done"
code 0 info good.lpt
code 0 info good
code 0 check good.lpt
code 0 diff good.lpt good.lpt
code 0 dump good.lpt
code 0 undump good.txt -o again.lpt
code 0 join good.lpt -o joined.lpt
code 0 explain good.lpt
code 0 report good.lpt -o page.html
code 0 query good.lpt 'SELECT 1'
code 0 info good --save-headers headers
code 0 record --checkpoint model --tp 2 -o model.lpt
code 0 replay good.lpt --checkpoint good -o again
code 0 verify good.lpt --checkpoint good
code 0 verify good.lpt --checkpoint good --against ranks
code 0 layout
code 0 bench --list
code 0 doctor
code 0 help check
code 0 completion fish
echo "--- the answer is no"
code 1 check holes.lpt
code 1 check holes.lpt --format=json
code 0 check holes.lpt --exit-zero
code 0 check holes.lpt --fail-on=never
code 1 diff good.lpt holes.lpt
code 0 diff good.lpt holes.lpt --exit-zero
code 1 replay fallback.lpt --checkpoint good -o fallback
code 0 replay fallback.lpt --checkpoint good --allow-fallbacks -o fallback
code 1 verify good.lpt --checkpoint good --against fallback
echo "--- usage"
for verb in $(loadplan help --format=names); do
    code 2 "$verb" --no-such-option
    code 2 "$verb" too many arguments here
done
for verb in info check diff dump undump join explain report query replay verify serve send recv completion; do code 2 "$verb"; done
code 2 record
code 2 nothing
code 2 bench no.such.bench
code 2
echo "--- bad data"
for file in garbage cut.lpt; do
    for verb in info check dump explain; do code 3 "$verb" "$file"; done
    code 3 diff good.lpt "$file"
    code 3 join "$file" -o x.lpt
    code 3 report "$file" -o x.html
    code 3 query "$file" 'SELECT 1'
    code 3 record --checkpoint "$file" -o x.lpt
    code 3 replay "$file" --checkpoint good -o x
    code 3 verify "$file" --checkpoint good
    code 3 serve "$file" --checkpoint good --socket s
    code 3 send "$file" --from good $meeting
    code 3 recv "$file" --into x $meeting
done
code 3 undump garbage -o x.lpt
echo "--- environment"
for verb in info check dump explain; do code 4 "$verb" absent; done
code 4 undump absent -o x.lpt
code 4 diff good.lpt absent
code 4 join absent -o x.lpt
code 4 report absent -o x.html
code 4 query absent 'SELECT 1'
code 4 record --checkpoint absent -o x.lpt
code 4 replay good.lpt --checkpoint absent -o x
code 4 verify good.lpt --checkpoint absent
code 4 serve good.lpt --checkpoint absent --socket s
code 4 send good.lpt --from absent $meeting
code 4 recv absent --into x $meeting
code 4 check good.lpt -o absent/x
echo "--- a stale trace"
code 5 replay good.lpt --checkpoint stale -o x
code 5 verify good.lpt --checkpoint stale
code 5 serve good.lpt --checkpoint stale --socket s
code 5 send good.lpt --from stale $meeting
test ! -e x -a ! -e x.lpt -a ! -e x.html
