"$PYTHON" "$SUITE/make_tensors.py" in.safetensors U8 w2:256x64
echo old >out.safetensors
code=0
loadplan layout mxfp4_l2_weight --apply in.safetensors -o out.safetensors || code=$?
cat out.safetensors
loadplan layout mxfp4_l2_weight --apply in.safetensors -o out.safetensors -f -q
test -s out.safetensors
exit $code
