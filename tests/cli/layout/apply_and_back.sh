"$PYTHON" "$SUITE/make_tensors.py" in.safetensors U8 w1:2x128x128 w3:2x128x128
loadplan layout mxfp4_l1_weight --apply in.safetensors -o out.safetensors
head -c 272 out.safetensors | tail -c +9
echo
tail -c 65536 out.safetensors | sha256sum
loadplan layout mxfp4_l1_weight --apply out.safetensors --inverse -o back.safetensors -q
cmp <(tail -c 65536 in.safetensors) <(tail -c 65536 back.safetensors) && echo same bytes
