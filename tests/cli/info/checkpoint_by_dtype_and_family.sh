mkdir ckpt
write="$PYTHON $SUITE/write_safetensors.py"
$write ckpt/one.safetensors layers.0.experts.{0..9}.up.weight:U8:64x32 layers.0.norm.weight:BF16:64 \
    embed.weight:F32:1000x64 --metadata format=pt
$write ckpt/two.safetensors layers.1.experts.{0..9}.up.weight:U8:64x32 layers.1.norm.weight:BF16:64 \
    scale:F32: --metadata format=pt
$PYTHON - <<'PYTHON'
import json
names = [f"layers.{l}.experts.{e}.up.weight" for l in (0, 1) for e in range(10)]
place = {name: "one.safetensors" if ".0." in name[:9] else "two.safetensors" for name in names}
place |= {"layers.0.norm.weight": "one.safetensors", "embed.weight": "one.safetensors"}
place |= {"layers.1.norm.weight": "two.safetensors", "scale": "two.safetensors"}
json.dump({"metadata": {}, "weight_map": place}, open("ckpt/model.safetensors.index.json", "w"))
PYTHON
echo "a stray file that the index does not list" > ckpt/consolidated.safetensors
loadplan info ./ckpt
echo "--- two families"
loadplan info ./ckpt --families 2
echo "--- an index is the same"
loadplan info ckpt/model.safetensors.index.json --families 0
echo "--- every tensor"
loadplan info ckpt/two.safetensors --tensors --families 0 | tail -3
