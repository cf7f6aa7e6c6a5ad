# What `layout` prints as JSON: the list, a layout and a chain with and without sizes, a chain found and compared.
valid() { "$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/layout.json" "$@"; }
show() { loadplan layout "$@" --format=json >out.json && valid out.json; }
show
loadplan layout | cut -d ' ' -f 1 | while read -r name; do
    loadplan layout "$name" --format=json | tr -d '\n'
    echo
done >all.json
valid all.json --lines | tr -d '0-9'
show mxfp4_l1_weight --shape E=2,H=512,I=384
show nvfp4_l2_scale --shape E=2,H=512,I=384
show scale_128x4 --shape N=130,K=5
show --chain 'N(b h=2) K -> ~h b K' --unit 16
"$PYTHON" "$SUITE/make_order.py" tiles tiles
show --identify tiles --shape 384,12
show scale_128x4 --identify tiles --shape 384,12
show scale_128x4 --compare scale_blackwell_triton --shape 384,8
show scale_128x4 --compare scale_8x4 --shape 384,8 || valid out.json
show scale_128x4 --compare scale_blackwell_triton --shape 384,4 || valid out.json
show high_bit_first --shape 24
show gguf_q8_0_4x4 --shape N=8,B=3,P=34
echo "--- not the same"
show --chain 'N(r a=4 i=32) K(c k=4) -> c r (i a k)' --identify tiles --shape 384,12 || valid out.json
tr -d ' \n' <out.json
echo
show scale_128x4 --identify tiles --shape 256,12 || valid out.json
tr -d ' \n' <out.json
echo
sed 's/"same": false/"same": 0/' out.json >wrong.json
valid wrong.json >said && exit 9
grep -c "same: 0 is no boolean" said
