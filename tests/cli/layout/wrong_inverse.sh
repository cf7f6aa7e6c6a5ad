"$PYTHON" "$SUITE/make_tensors.py" in.safetensors U8 w2:2x256x64
loadplan layout mxfp4_l2_weight --apply in.safetensors -o out.safetensors -q
try() {
    code=0
    loadplan layout "$@" -o x.safetensors || code=$?
    test "$code" -eq 3
    test ! -e x.safetensors
}
try nvfp4_l2_weight --apply out.safetensors --inverse
try mxfp4_l2_weight --apply in.safetensors --inverse
try mxfp4_l2_weight --apply out.safetensors --inverse --shape E=2,H=512,I=128
