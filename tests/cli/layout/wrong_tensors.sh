# one after the other, every one with exit code 3 and nothing written
try() {
    code=0
    loadplan layout "$1" --apply in.safetensors -o out.safetensors || code=$?
    test "$code" -eq 3
    test ! -e out.safetensors
    test ! -e out.safetensors.partial
}
make() { "$PYTHON" "$SUITE/make_tensors.py" in.safetensors "$@"; }
make U8 w1:128x128 w3:128x64
try mxfp4_l1_weight
make U8 w1:128x128
try mxfp4_l1_weight
make U8 w13:255x128
try mxfp4_l1_weight
make U8 w13:2x2x256x128
try mxfp4_l1_weight
make U8 w13:5760x1536
try mxfp4_l1_weight
make F32 w2:256x64
try mxfp4_l2_weight
make I8 w2:3x256x64
try mxfp8_shared_l2_weight
make U8 w2:256x2
try nvfp4_l2_scale
