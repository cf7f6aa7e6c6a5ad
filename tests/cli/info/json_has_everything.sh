$PYTHON "$SUITE/write_safetensors.py" x.safetensors b.0:BF16:2x3 b.1:BF16:2x3 a:F32: --metadata format=pt
loadplan info x.safetensors --format=json --tensors
